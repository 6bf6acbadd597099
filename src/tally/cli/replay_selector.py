"""The options that select what to reprocess, and the request that they make."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import click

from tally.cli import options
from tally.cli.options import MINUTE, OFFSET, RANGE, TIME
from tally.errors import UsageError
from tally.planning import replay_request as requests

FILE: Final = click.Path(path_type=Path, dir_okay=False)
OPTIONS: Final = (
    options.topic_option(help="This topic; every topic by default."),
    options.partition_option(
        multiple=True, help="This partition; every partition by default. May be repeated."
    ),
    click.option(
        "--from",
        type=OFFSET,
        help="First offset; by default that of the first segment that Kafka still holds whole.",
    ),
    click.option(
        "--until",
        type=OFFSET,
        help="First offset after the range; the committed offset by default.",
    ),
    click.option(
        "--range",
        type=RANGE,
        multiple=True,
        help="This range of offsets; also as it is printed, 'alog/0 [300, 310)'. May be repeated.",
    ),
    click.option(
        "--since",
        type=TIME,
        help="By Kafka's record times: from the first record at or after this time, such as "
        "2026-11-20T14:05:00Z. Needs --before.",
    ),
    click.option(
        "--before", type=TIME, help="Up to the first record at or after this time. Needs --since."
    ),
    options.batch_option(help="The ranges of this batch."),
    click.option(
        "--minute", type=MINUTE, help="All segments with lines of this minute of the result."
    ),
    click.option(
        "--to-minute", type=MINUTE, help="Last minute, inclusive; --minute alone by default."
    ),
    click.option(
        "--from-file",
        type=FILE,
        help="First offsets, as kafka-consumer-groups --export writes them.",
    ),
    click.option(
        "--until-file", type=FILE, help="First offsets after the ranges, in the same form."
    ),
    click.option("--all", is_flag=True, help="Everything that can be reprocessed."),
)

# Ways to select ranges: the options of which one is required, then those that may be added.
_WHERE: Final = frozenset({"--topic", "--partition"})
_WAYS: Final[tuple[tuple[frozenset[str], frozenset[str]], ...]] = (
    (frozenset({"--all"}), frozenset()),
    (frozenset({"--range"}), frozenset()),
    (frozenset({"--since", "--before"}), _WHERE),
    (frozenset({"--batch"}), frozenset()),
    (frozenset({"--minute", "--to-minute"}), frozenset()),
    (frozenset({"--from-file", "--until-file"}), _WHERE),
    (frozenset({"--from", "--until"}) | _WHERE, frozenset()),
)
_NEEDS: Final = {
    "--since": ("--before", "name both ends of the time span"),
    "--before": ("--since", "name both ends of the time span"),
    "--to-minute": ("--minute", "name the first minute as well"),
}

Selected = Mapping[str, Any]
"""What was given for each option, by the name that click makes of it."""


def selector_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that select what to reprocess, as keyword arguments of the command."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def options_given(selected: Selected) -> list[str]:
    """The options that were given, by name."""
    return [
        f"--{name.replace('_', '-')}"
        for name, value in selected.items()
        if value is not False and value not in (None, ())
    ]


def read_request(selected: Selected) -> requests.Request:
    """The request that the options make.

    Raises:
        UsageError: The options select nothing, are incomplete, or mix two ways to select.
        ReplayRefusedError: A file cannot be read, or a time span ends before it begins.
    """
    _check_one_way(options_given(selected))
    given = selected.get
    where: dict[str, Any] = {"topic": given("topic"), "partitions": given("partition") or ()}
    if ranges := given("range"):
        return requests.RangesAsked(ranges=ranges)
    if (batch_id := given("batch")) is not None:
        return requests.BatchAsked(batch_id=batch_id)
    if minute := given("minute"):
        return requests.MinutesAsked(first=minute, last=given("to_minute") or minute)
    if since := given("since"):
        return requests.TimesAsked(since=since, before=selected["before"], **where)
    files = {"from_offsets": given("from_file"), "until_offsets": given("until_file")}
    where |= {name: requests.read_bounds(file) for name, file in files.items() if file}
    return requests.BoundsAsked(from_offset=given("from"), until_offset=given("until"), **where)


def _check_one_way(given: list[str]) -> None:
    if not given:
        raise UsageError(
            "the options do not say what to reprocess",
            next_step="name offsets (--topic, --partition, --from, --until, or --range), times "
            "(--since and --before), a --batch, a --minute or files (--from-file, --until-file); "
            "--all is everything that can be reprocessed",
        )
    leading, beside = next(way for way in _WAYS if way[0] & set(given))
    if others := [name for name in given if name not in leading | beside]:
        first = next(name for name in given if name in leading)
        raise UsageError(
            f"{first} and {others[0]} are two ways to select what to reprocess",
            next_step="choose one",
        )
    for name, (needed, next_step) in _NEEDS.items():
        if name in given and needed not in given:
            raise UsageError(f"{name} needs {needed}", next_step=next_step)
