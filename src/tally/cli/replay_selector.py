"""The options that select what to reprocess, and the request that they make."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import click

from tally.cli import completion, options
from tally.errors import UsageError
from tally.model import TopicPartition
from tally.planning.replay_request import (
    BatchAsked,
    BoundsAsked,
    MinutesAsked,
    RangesAsked,
    Request,
    TimesAsked,
    parse_minute,
    parse_range,
    read_bounds,
)

read_range = options.parsed(parse_range)
read_minute = options.parsed(parse_minute)

_MINUTE: Final = "'YYYY-MM-DD HH:MM'"

# Type, metavar and help by option, and what else click is to know of some.
_OPTIONS: Final[Mapping[str, tuple[Any, str | None, str]]] = {
    "--topic": (str, "NAME", "This topic; every topic by default."),
    "--partition": (
        options.PARTITION,
        "NUMBER",
        "This partition; every partition by default. May be repeated.",
    ),
    "--from": (
        options.OFFSET,
        "OFFSET",
        "First offset; by default that of the first segment that Kafka still holds whole.",
    ),
    "--until": (
        options.OFFSET,
        "OFFSET",
        "First offset after the range; the committed offset by default.",
    ),
    "--range": (
        read_range,
        "TOPIC/PARTITION:FROM-UNTIL",
        "This range of offsets; also as it is printed, 'alog/0 [300, 310)'. May be repeated.",
    ),
    "--since": (
        options.read_time,
        "TIME",
        (
            "By Kafka's record times: from the first record at or after this time, such as "
            "2026-11-20T14:05:00Z. Needs --before."
        ),
    ),
    "--before": (
        options.read_time,
        "TIME",
        "Up to the first record at or after this time. Needs --since.",
    ),
    "--batch": (options.BATCH, "BATCH", "The ranges of this batch."),
    "--minute": (read_minute, _MINUTE, "All segments with lines of this minute of the result."),
    "--to-minute": (read_minute, _MINUTE, "Last minute, inclusive; --minute alone by default."),
    "--from-file": (
        click.Path(path_type=Path),
        "FILE",
        "First offsets, as kafka-consumer-groups --export writes them.",
    ),
    "--until-file": (
        click.Path(path_type=Path),
        "FILE",
        "First offsets after the ranges, in the same form.",
    ),
    "--all": (bool, None, "Everything that can be reprocessed."),
}
_MORE: Final[Mapping[str, Mapping[str, Any]]] = {
    "--topic": {"shell_complete": completion.topics},
    "--partition": {"multiple": True},
    "--range": {"multiple": True},
    "--batch": {"shell_complete": completion.batches},
    "--all": {"is_flag": True},
}

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
    for name, (kind, metavar, text) in reversed(list(_OPTIONS.items())):
        more = _MORE.get(name, {})
        command = click.option(name, type=kind, metavar=metavar, help=text, **more)(command)
    return command


def options_given(selected: Selected) -> list[str]:
    """The options that were given, by name."""
    values = {name: selected.get(name[2:].replace("-", "_")) for name in _OPTIONS}
    return [
        name for name, value in values.items() if value is not False and value not in (None, ())
    ]


def read_request(selected: Selected) -> Request:
    """The request that the options make.

    Raises:
        UsageError: The options select nothing, are incomplete, or mix two ways to select.
        ReplayRefusedError: A file cannot be read, or a time span ends before it begins.
    """
    _check_one_way(options_given(selected))
    given = selected.get
    where: dict[str, Any] = {"topic": given("topic"), "partitions": given("partition") or ()}
    if ranges := given("range"):
        return RangesAsked(ranges=ranges)
    if (batch_id := given("batch")) is not None:
        return BatchAsked(batch_id=batch_id)
    if minute := given("minute"):
        return MinutesAsked(first=minute, last=given("to_minute") or minute)
    if since := given("since"):
        return TimesAsked(since=since, before=selected["before"], **where)
    return BoundsAsked(
        from_offset=given("from"),
        until_offset=given("until"),
        from_offsets=_bounds(given("from_file")),
        until_offsets=_bounds(given("until_file")),
        **where,
    )


def _bounds(file: Path | None) -> Mapping[TopicPartition, int]:
    return read_bounds(file) if file else {}


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
