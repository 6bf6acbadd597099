"""``format``: line formats, tried before they are trusted."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from tally.cli import options
from tally.cli.app import App
from tally.cli.command import Group
from tally.cli.output import Output, shortened
from tally.cli.session import lazy_session
from tally.config.loading import load_settings
from tally.config.settings import Settings
from tally.errors import ConfigError, UsageError
from tally.formatting import plural
from tally.lines.format import Accepted
from tally.lines.parsing import CATALOGUE, OPTIONS, SKIP_BYTES_MAX
from tally.lines.time_rule import FROM_RECORD, check_zone
from tally.reading.columns import COUNT, TEXT, Column
from tally.set_up.format_advice import Configured, FormatTrial
from tally.set_up.format_trial import TIME_KEYS, TrialView, try_formats

WIDTH: Final = 70
HELP: Final = "tally format try --help"
FIELDS_SHOWN: Final = 5
FIELD_WIDTH: Final = 20


@click.group(cls=Group)
def format() -> None:  # noqa: A001 - the command's name
    """Try line formats before they are configured."""


def _year(text: str) -> int | str:
    if text != FROM_RECORD and not (text.isdecimal() and 1000 <= int(text) <= 9999):
        raise ValueError(f"a year of four digits, or {FROM_RECORD}")
    return text if text == FROM_RECORD else int(text)


def _field(text: str) -> tuple[str, str]:
    name, _equals, path = text.partition("=")
    if not (name and path):
        raise ValueError(f"{text!r}: a name and its keys, such as time=log.timestamp")
    return name, path


def _topics_and_files(
    context: click.Context, parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    """The topics, and files by the shell's own means."""
    topics = options.complete_topics(context, parameter, begun)
    return [*topics, CompletionItem(begun, type="file")]


@format.command("try", document=TrialView)
@click.argument("source", metavar="TOPIC|FILE", shell_complete=_topics_and_files)
@click.option("--format", "name", metavar="NAME", help="This ready-made format; all by default.")
@options.pipeline_option(help="The format and the time's keys of this pipeline.")
@click.option("--pattern", metavar="REGEX", help="This pattern, with named groups.")
@click.option(
    "--field",
    "fields",
    type=options.Text("name=path", _field),
    multiple=True,
    help="A field of JSON lines and its keys, as log.level; once for each of them.",
)
@click.option("--logfmt", is_flag=True, help="The fields are those of key=value lines.")
@click.option(
    "--time-format", metavar="FORMAT", help="How the time of --pattern or --field is written."
)
@click.option(
    "--skip-bytes",
    metavar="NUMBER",
    type=options.Number("a number of bytes", max=SKIP_BYTES_MAX),
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
@click.option("--assume-year", type=options.Text("year", _year), help="As in the configuration.")
@click.option("--time-zone", type=options.Text("zone", check_zone), help="As in the configuration.")
@click.option(
    "--lines",
    type=options.Number("a number of lines", max=100_000),
    default=1_000,
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
    r"""Show what formats make of a sample of a topic or of a file.

    Shows what is read as time, level and other fields, how many lines are malformed and why, and
    the keys to paste into tally.toml. Without --format, --pattern, --field and --pipeline every
    ready-made format is tried, and those that understand a line are listed, the best first. A year
    that a format does not print is taken from the record. Nothing is written.

    Examples:
        tally format try alog
        tally format try /var/log/syslog --format syslog
        tally format try alog --pipeline error_log
        tally format try x --pattern '(?<time>\d+) (?<level>\w+)' --time-format epoch_seconds
        tally format try app.json --field time=ts --field level=sev --time-format epoch_seconds
        tally format try orders --format json --skip-bytes 5 --time instant
    """
    formats = _formats(name, pipeline, given)
    file = Path(source)
    is_file = file.exists() and not file.is_dir()  # a pipe is read as well
    app.settings = _settings(app, is_optional=is_file and not pipeline)
    keys = {key: given[key] for key in TIME_KEYS if given[key]}
    if pipeline:
        found = app.settings.pipeline(pipeline)
        formats, keys = [found.line_format], found.model_dump(include=set(TIME_KEYS))
    tried = file if is_file else source
    with lazy_session(app) as open_session:
        view = try_formats(
            app.context, open_session, tried, formats, keys, pipeline=pipeline, limit=lines
        )
    app.out.document(view)
    _show(app.out, view, is_configured=pipeline is not None)


def _formats(name: str | None, pipeline: str | None, given: Mapping[str, Any]) -> list[Configured]:
    """What is to be tried, as in the configuration."""
    fields = dict(given["fields"])
    if sum(map(bool, (name, pipeline, given["pattern"], fields))) > 1:
        why = "--format, --pattern, --field, --pipeline: only one of them"
    elif len(fields) < len(given["fields"]):
        why = "--field: a name is given twice"
    elif given["time_format"] and not (fields or given["pattern"]):
        why = "--time-format: goes with --pattern or --field"
    elif given["logfmt"] and not fields:
        why = "--logfmt: goes with --field"
    elif pipeline and any(given[key] for key in (*TIME_KEYS, *OPTIONS)):
        why = (
            "--time, --assume-year, --time-zone, --skip-bytes, --default-level, --accept: with "
            "--pipeline its own are taken"
        )
    else:
        more = {key: given[key] for key in OPTIONS if given[key]}
        kind = "logfmt" if given["logfmt"] else "json"
        keys = {"pattern": given["pattern"], kind: fields, "time_format": given["time_format"]}
        if table := {key: value for key, value in keys.items() if value}:
            return [table | more]
        return [{"name": n, **more} if more else n for n in ([name] if name else CATALOGUE)]
    raise UsageError(why, next_step=HELP)


def _settings(app: App, *, is_optional: bool) -> Settings:
    """The servers' keys; no pipeline needs to be right, or to be there, before one is tried."""
    try:
        return load_settings(app.config_path, needs_pipeline=False)
    except ConfigError as error:
        if not is_optional:
            raise
        app.out.note(f"tried with Spark's defaults: {error.what}")
        return Settings()


def _malformed(trial: FormatTrial) -> str:
    malformed = sum(trial.malformed.values())
    return f"{malformed:,} ({malformed / (malformed + trial.understood):.0%})"


def _levels(trial: FormatTrial) -> str:
    return ", ".join(f"{level} {count:,}" for level, count in trial.levels.items())


TRIAL: Final = (
    Column("line_format", "", "FORMAT"),
    Column("understood", "", "UNDERSTOOD", COUNT),
    Column("malformed", "", "MALFORMED", COUNT, of=_malformed),
    Column("levels", "", "LEVELS", TEXT, of=_levels, width=WIDTH),
)


def _show(out: Output, view: TrialView, *, is_configured: bool) -> None:
    out.line(f"{view.source}: {plural(view.lines, 'line')}")
    if not any(trial.understood for trial in view.trials) and view.json_keys:
        there = f"a line is JSON with the keys {', '.join(view.json_keys)}"
        if is_configured:
            out.line(there)
        else:
            out.line(f"{there}; name those of time and level, and say how the time is written:")
            unknown = {"time": "…", "level": "…", "time_format": "'yyyy-MM-dd HH:mm:ss'"}
            guess = unknown | {key: shlex.quote(value) for key, value in view.json_guess.items()}
            out.line(
                f"  tally format try {view.source} --field time={guess['time']} "
                f"--field level={guess['level']} --time-format {guess['time_format']}"
            )
    elif not view.trials:
        out.line("no ready-made format understands any of them; the first is")
        out.line(f"  {shortened(view.first, WIDTH)}")
        out.line("try a pattern of your own, which begins as a line does, such as:")
        out.line(
            f"  tally format try {view.source} --time-format 'yyyy-MM-dd HH:mm:ss' "
            r"--pattern '(?<time>\S+ \S+) \[\w+\] (?<level>[A-Z]+)'"
        )
    for option, lines in view.options_guess.items():
        out.line(f"{plural(lines, 'line')} may need the option {option}")
    if len(view.trials) > 1:
        out.line()
        out.records(TRIAL, view.trials)
    for best in view.trials[:1]:
        _show_best(out, best, view.lines)


def _show_best(out: Output, trial: FormatTrial, lines: int) -> None:
    out.line()
    out.line(f"{trial.line_format}: {trial.understood:,} of {lines:,} understood")
    for example in trial.examples:
        out.line(f"  {shortened(example.line, WIDTH)}")
        fields = [f"{key}={shortened(of, FIELD_WIDTH)}" for key, of in example.fields.items()]
        out.line("  ".join([f"      {(example.minute or '')[:-3]}", *fields[:FIELDS_SHOWN]]))
    for failure in trial.failures:
        count = trial.malformed[failure.reason or ""]
        out.line(f"malformed, {failure.reason}: {plural(count, 'line')}, such as")
        out.line(f"  {shortened(failure.line, WIDTH)}")
    if trial.understood and trial.continuations:
        out.line(
            f'continuation_lines = "unmatched" leaves {trial.continuations:,} of them out, as '
            "records that begin no line"
        )
    out.line("\nfor tally.toml:\n")
    for row in trial.toml.splitlines():
        out.line(f"  {row}")
