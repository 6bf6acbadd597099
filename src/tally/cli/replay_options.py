"""The options that select what to reprocess, and how their values are parsed."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from tally.cli import completion
from tally.cli.options import BATCH, OFFSET, PARTITION, parsed, read_time
from tally.planning.replay_request import parse_minute, parse_range

read_range = parsed(parse_range)
read_minute = parsed(parse_minute)


def _by_offset() -> Iterator[Callable[..., Any]]:
    add = click.option
    yield add(
        "--topic",
        metavar="NAME",
        shell_complete=completion.topics,
        help="This topic; every topic by default.",
    )
    yield add(
        "--partition",
        "partitions",
        type=PARTITION,
        metavar="NUMBER",
        multiple=True,
        help="This partition; every partition by default. May be repeated.",
    )
    yield add(
        "--from",
        "from_offset",
        type=OFFSET,
        metavar="OFFSET",
        help="First offset; by default that of the first segment that Kafka still holds whole.",
    )
    yield add(
        "--until",
        "until_offset",
        type=OFFSET,
        metavar="OFFSET",
        help="First offset after the range; the committed offset by default.",
    )
    yield add(
        "--range",
        "ranges",
        type=read_range,
        metavar="TOPIC/PARTITION:FROM-UNTIL",
        multiple=True,
        help="This range of offsets; also as it is printed, 'alog/0 [300, 310)'. May be repeated.",
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
        type=BATCH,
        metavar="BATCH",
        shell_complete=completion.batches,
        help="The ranges of this batch.",
    )
    yield add(
        "--minute",
        type=read_minute,
        metavar="'YYYY-MM-DD HH:MM'",
        help="All segments with lines of this minute of the result.",
    )
    yield add(
        "--to-minute",
        type=read_minute,
        metavar="'YYYY-MM-DD HH:MM'",
        help="Last minute, inclusive; --minute alone by default.",
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
        help="First offsets after the ranges, in the same form.",
    )
    yield add("--all", "everything", is_flag=True, help="Everything that can be reprocessed.")


def selector_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a :class:`tally.cli.replay_selector.Selector`, named as its fields."""
    for option in reversed([*_by_offset(), *_by_time_or_batch(), *_by_file()]):
        command = option(command)
    return command
