"""``format``: line formats, tried before they are trusted."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tally.cli import completion
from tally.cli.app import App
from tally.cli.command import Group
from tally.cli.options import Number
from tally.cli.session import lazy_session
from tally.cli.ui.values import shortened
from tally.errors import ConfigError, UsageError
from tally.formatting import plural
from tally.lines.options import OPTIONS, SKIP_BYTES_MAX, Accepted
from tally.lines.parsing import CATALOGUE
from tally.lines.time_rule import FROM_RECORD, TimeRule, check_zone
from tally.set_up.format_advice import Configured, FormatTrial, TriedLine
from tally.set_up.format_trial import TrialView, try_formats

if TYPE_CHECKING:
    from tally.config.settings import Settings

LINES: Final = 1_000
WIDTH: Final = 70
HELP: Final = "tally format try --help"
SHOWN: Final = 5


@click.group(cls=Group)
def format() -> None:  # noqa: A001 - the command's name
    """Try line formats before they are configured."""


def _zone(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    try:
        return None if value is None else check_zone(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _year(_: click.Context, __: click.Parameter, value: str | None) -> int | str | None:
    if value is None or value == FROM_RECORD:
        return value
    if not (value.isdecimal() and 1000 <= int(value) <= 9999):
        raise click.BadParameter(f"a year of four digits, or {FROM_RECORD}")
    return int(value)


def _fields(_: click.Context, __: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    fields = {}
    for value in values:
        name, _equals, path = value.partition("=")
        if not (name and path):
            raise click.BadParameter(f"{value!r}: a name and its keys, such as time=log.timestamp")
        if name in fields:
            raise click.BadParameter(f"{name} is given twice")
        fields[name] = path
    return fields


@format.command(
    "try",
    examples=[
        "tally format try alog",
        "tally format try /var/log/syslog --format syslog",
        "tally format try alog --pipeline error_log",
        "tally format try x --pattern '(?<time>\\d+) (?<level>\\w+)' --time-format epoch_seconds",
        "tally format try app.json --field time=ts --field level=sev --time-format epoch_seconds",
        "tally format try orders --format json --skip-bytes 5 --time instant",
    ],
    document=TrialView,
)
@click.argument("source", metavar="TOPIC|FILE", shell_complete=completion.topics_and_files)
@click.option("--format", "name", metavar="NAME", help="This ready-made format; all by default.")
@click.option(
    "--pipeline",
    metavar="NAME",
    shell_complete=completion.pipelines,
    help="The format and the time's keys of this pipeline.",
)
@click.option("--pattern", metavar="REGEX", help="This pattern, with named groups.")
@click.option(
    "--field",
    "fields",
    metavar="NAME=PATH",
    multiple=True,
    callback=_fields,
    help="A field of JSON lines and its keys, as log.level; once for each of them.",
)
@click.option("--logfmt", is_flag=True, help="The fields are those of key=value lines.")
@click.option(
    "--time-format", metavar="FORMAT", help="How the time of --pattern or --field is written."
)
@click.option(
    "--skip-bytes",
    metavar="NUMBER",
    type=Number("a number of bytes", max=SKIP_BYTES_MAX),
    help="As in the configuration.",
)
@click.option("--default-level", metavar="LEVEL", help="As in the configuration.")
@click.option(
    "--accept",
    metavar="WHAT",
    type=click.Choice([str(accepted) for accepted in Accepted]),
    multiple=True,
    help=f"{', '.join(Accepted)}: as in the configuration; once for each of them.",
)
@click.option(
    "--time",
    metavar="WHICH",
    type=click.Choice(["line", "instant", "record"]),
    help="line, instant, record: as in the configuration.",
)
@click.option("--assume-year", metavar="YEAR", callback=_year, help="As in the configuration.")
@click.option("--time-zone", metavar="ZONE", callback=_zone, help="As in the configuration.")
@click.option(
    "--lines",
    type=Number("a number of lines", max=100_000),
    default=LINES,
    show_default=True,
    help="Lines of the sample, about: the newest of each partition, or the first of a file.",
)
def try_(
    app: App,
    /,
    source: str,
    name: str | None,
    pipeline: str | None,
    lines: int,
    **given: Any,
) -> None:
    """Show what formats make of a sample of a topic or of a file.

    Shows what is read as time, level and other fields, how many lines are malformed and why, and
    the keys to paste into tally.toml. Without --format, --pattern, --field and --pipeline every
    ready-made format is tried, and those that understand a line are listed, the best first. A year
    that a format does not print is taken from the record. Nothing is written.
    """
    formats = _formats(name, pipeline, given)
    own = ("time", "assume_year", "time_zone", *OPTIONS)
    if pipeline and any(given[key] for key in own):
        raise UsageError(
            "--time, --assume-year, --time-zone, --skip-bytes, --default-level, --accept: with "
            "--pipeline its own are taken",
            next_step=HELP,
        )
    file = Path(source)
    is_file = file.exists() and not file.is_dir()  # a pipe is read as well
    app.settings = _settings(app, is_optional=is_file and not pipeline)
    rule = TimeRule(
        from_record=given["time"] == "record",
        by_offset=given["time"] == "instant",
        assume_year=given["assume_year"],
        zone=given["time_zone"],
    )
    if pipeline:
        found = app.settings.pipeline(pipeline)
        formats, rule = [found.line_format], found.time_rule
    with lazy_session(app) as open_session:
        view = try_formats(
            app.context,
            open_session,
            file if is_file else source,
            formats,
            rule,
            pipeline=pipeline,
            limit=lines,
        )
    if app.out.as_json:
        app.out.view(view)
    else:
        _show(app, view, is_configured=pipeline is not None)


def _formats(name: str | None, pipeline: str | None, given: Mapping[str, Any]) -> list[Configured]:
    """What is to be tried, as in the configuration."""
    fields = "logfmt" if given["logfmt"] else "json"
    keys = {"pattern": "pattern", fields: "fields", "time_format": "time_format"}
    table = {key: given[option] for key, option in keys.items() if given[option]}
    if sum(map(bool, (name, pipeline, table.get("pattern"), table.get(fields)))) > 1:
        raise UsageError(
            "--format, --pattern, --field, --pipeline: only one of them", next_step=HELP
        )
    if table.keys() == {"time_format"}:
        raise UsageError("--time-format: goes with --pattern or --field", next_step=HELP)
    if given["logfmt"] and fields not in table:
        raise UsageError("--logfmt: goes with --field", next_step=HELP)
    options = {key: given[key] for key in OPTIONS if given[key]}
    if table:
        return [table | options]
    return [{"name": n, **options} if options else n for n in ([name] if name else CATALOGUE)]


def _settings(app: App, *, is_optional: bool) -> "Settings":
    """The servers' keys; no pipeline needs to be right, or to be there, before one is tried."""
    from tally.config.loading import load_settings  # noqa: PLC0415 - --help does without
    from tally.config.settings import Settings  # noqa: PLC0415 - as above

    try:
        return load_settings(app.config_path, needs_pipeline=False)
    except ConfigError as error:
        if not is_optional:
            raise
        app.out.note(f"tried with Spark's defaults: {error.what}")
        return Settings()


def _show(app: App, view: TrialView, *, is_configured: bool) -> None:
    app.out.line(f"{view.source}: {plural(view.lines, 'line')}")
    if not any(trial.understood for trial in view.trials) and view.json_keys:
        there = f"a line is JSON with the keys {', '.join(view.json_keys)}"
        if is_configured:
            app.out.line(there)
        else:
            app.out.line(f"{there}; name those of time and level, and say how the time is written:")
            guess = {key: shlex.quote(value) for key, value in view.json_guess.items()}
            time_format = guess.get("time_format", "'yyyy-MM-dd HH:mm:ss'")
            app.out.line(
                f"  tally format try {view.source} --field time={guess.get('time', '…')} "
                f"--field level={guess.get('level', '…')} "
                f"--time-format {time_format}"
            )
    elif not view.trials:
        app.out.line("no ready-made format understands any of them; the first is")
        app.out.line(f"  {shortened(view.first, WIDTH)}")
        app.out.line("try a pattern of your own, which begins as a line does, such as:")
        app.out.line(
            f"  tally format try {view.source} --time-format 'yyyy-MM-dd HH:mm:ss' "
            r"--pattern '(?<time>\S+ \S+) \[\w+\] (?<level>[A-Z]+)'"
        )
    for option, lines in view.options_guess.items():
        app.out.line(f"{plural(lines, 'line')} may need the option {option}")
    if not view.trials:
        return
    if len(view.trials) > 1:
        app.out.line()
        app.out.table(
            ["FORMAT", "UNDERSTOOD", "MALFORMED", "LEVELS"],
            [_row(trial, view.lines) for trial in view.trials],
            numbers=["UNDERSTOOD", "MALFORMED"],
            texts=["LEVELS"],
        )
    _show_best(app, view.trials[0], view.lines)


def _row(trial: FormatTrial, lines: int) -> list[str]:
    levels = ", ".join(f"{level} {count:,}" for level, count in trial.levels.items())
    malformed = lines - trial.understood
    return [
        trial.line_format,
        f"{trial.understood:,}",
        f"{malformed:,} ({malformed / lines:.0%})",
        shortened(levels, WIDTH),
    ]


def _show_best(app: App, trial: FormatTrial, lines: int) -> None:
    app.out.line()
    app.out.line(f"{trial.line_format}: {trial.understood:,} of {lines:,} understood")
    for example in trial.examples:
        app.out.line(f"  {shortened(example.line, WIDTH)}")
        app.out.line(f"      {_as_read(example)}")
    for reason, count in trial.malformed.items():
        app.out.line(f"malformed, {reason}: {plural(count, 'line')}, such as")
        app.out.line(
            f"  {shortened(next(f.line for f in trial.failures if f.reason == reason), WIDTH)}"
        )
    if trial.understood and trial.continuations:
        app.out.line(
            f'continuation_lines = "unmatched" leaves {trial.continuations:,} of them out, as '
            "records that begin no line"
        )
    app.out.line()
    app.out.line("for tally.toml:")
    app.out.line()
    for row in trial.toml.splitlines():
        app.out.line(f"  {row}")


def _as_read(example: TriedLine) -> str:
    fields = [f"{key}={shortened(text, 20)}" for key, text in example.fields.items()][:SHOWN]
    return "  ".join([(example.minute or "")[:-3], *fields])
