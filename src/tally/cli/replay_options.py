"""The options that say what to count again, and how their values are read."""

import re
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import click

from tally.model import OffsetRange, TopicPartition

_RANGE: Final = re.compile(
    r"(?P<topic>.+)/(?P<partition>[0-9]+):(?P<start>[0-9]+)-(?P<until>[0-9]+)"
)


def read_range(text: str) -> OffsetRange:
    """``alog/0:300-310``, the until left out.

    Raises:
        click.BadParameter: It is none.
    """
    found = _RANGE.fullmatch(text.strip())
    if found is None:
        raise click.BadParameter(f"{text!r} is not TOPIC/PARTITION:FROM-UNTIL, as alog/0:300-310")
    start, until = int(found["start"]), int(found["until"])
    if start >= until:
        raise click.BadParameter(f"{text!r}: {start} is not smaller than {until}")
    partition = TopicPartition(topic=found["topic"], partition=int(found["partition"]))
    return OffsetRange(partition=partition, from_offset=start, until_offset=until)


def read_time(text: str) -> datetime:
    """An aware time from ISO 8601.

    Raises:
        click.BadParameter: It is none, or has no zone.
    """
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError:
        raise click.BadParameter(f"{text!r} is no time; write it as 2026-11-20T14:05:00Z") from None
    if time.tzinfo is None:
        naive = time.isoformat()
        raise click.BadParameter(
            f"{text!r} has no zone; write it as {naive}Z for UTC, or as {naive}+02:00"
        )
    return time


def read_minute(text: str) -> str:
    """``YYYY-MM-DD HH:MM`` with all its zeros, a minute of the lines' own clock.

    Raises:
        click.BadParameter: It is none.
    """
    try:
        minute = datetime.strptime(text.strip(), "%Y-%m-%d %H:%M")  # noqa: DTZ007 - it has no zone
    except ValueError:
        raise click.BadParameter(f"{text!r} is no minute; write it as '2026-11-20 14:05'") from None
    return minute.isoformat(sep=" ", timespec="minutes")


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
        "--until-file", type=file, metavar="FILE", help="First offsets that are left out, likewise."
    )
    yield add("--all", "everything", is_flag=True, help="Everything that can be counted again.")


def selector_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """All options of a :class:`Selector`, under the names of its fields."""
    for option in reversed([*_by_offset(), *_by_time_or_batch(), *_by_file()]):
        command = option(command)
    return command
