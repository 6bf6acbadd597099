"""The options that say what to count again, and how their values are read."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click

from tally.errors import ReplayRefusedError
from tally.planning.replay_text import parse_minute, parse_range, parse_time

Parsed = TypeVar("Parsed")


def _parsed(parse: Callable[[str], Parsed]) -> Callable[[str], Parsed]:
    """For click, which says which option it was."""

    def read(text: str) -> Parsed:
        try:
            return parse(text)
        except ReplayRefusedError as error:
            raise click.BadParameter(f"{error.what}; {error.next_step}") from error

    return read


read_range = _parsed(parse_range)
read_time = _parsed(parse_time)
read_minute = _parsed(parse_minute)


def _by_offset() -> Iterator[Callable[..., Any]]:
    offset, add = click.IntRange(min=0), click.option
    yield add("--topic", metavar="NAME", help="This topic; every topic when not given.")
    yield add(
        "--partition",
        "partitions",
        type=click.IntRange(min=0),
        metavar="NUMBER",
        multiple=True,
        help="This partition; every one when not given. May be repeated.",
    )
    yield add(
        "--from",
        "from_offset",
        type=offset,
        metavar="OFFSET",
        help="First offset; the first segment that Kafka still holds whole when not given.",
    )
    yield add(
        "--until",
        "until_offset",
        type=offset,
        metavar="OFFSET",
        help="First offset that is left out; where counting stands when not given.",
    )
    yield add(
        "--range",
        "ranges",
        type=read_range,
        metavar="TOPIC/PARTITION:FROM-UNTIL",
        multiple=True,
        help="This range of offsets. May be repeated.",
    )


def _by_time_or_batch() -> Iterator[Callable[..., Any]]:
    add = click.option
    yield add(
        "--since",
        type=read_time,
        metavar="TIME",
        help="By Kafka's record times: from the first record at or after this time, such as "
        "2026-11-20T14:05:00Z. Needs --before.",
    )
    yield add(
        "--before",
        type=read_time,
        metavar="TIME",
        help="Up to the first record at or after this time. Needs --since.",
    )
    yield add(
        "--batch",
        "batch_id",
        type=click.IntRange(min=1),
        metavar="BATCH",
        help="What this batch has counted.",
    )
    yield add(
        "--minute",
        type=read_minute,
        metavar="'YYYY-MM-DD HH:MM'",
        help="Whatever has counted lines of this minute of the result.",
    )
    yield add(
        "--to-minute",
        type=read_minute,
        metavar="'YYYY-MM-DD HH:MM'",
        help="Of all minutes from --minute to this one, itself included.",
    )


def _by_file() -> Iterator[Callable[..., Any]]:
    file, add = click.Path(path_type=Path), click.option
    yield add(
        "--from-file",
        type=file,
        metavar="FILE",
        help="First offsets, as kafka-consumer-groups --export writes them.",
    )
    yield add(
        "--until-file",
        type=file,
        metavar="FILE",
        help="First offsets that are left out, in the same form.",
    )
    yield add("--all", "everything", is_flag=True, help="Everything that can be counted again.")


def selector_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """All options of a :class:`tally.cli.replay_asking.Selector`, under the names of its fields."""
    for option in reversed([*_by_offset(), *_by_time_or_batch(), *_by_file()]):
        command = option(command)
    return command
