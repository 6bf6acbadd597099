"""What to reprocess, from the options of the command line."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from tally.errors import UsageError
from tally.model import OffsetRange
from tally.planning.replay_request import (
    BatchAsked,
    BoundsAsked,
    MinutesAsked,
    RangesAsked,
    Request,
    TimesAsked,
    read_bounds,
)

_WHERE: Final = frozenset({"--topic", "--partition"})

# Ways to select ranges: the options of which one is required, then those that may be added.
_WAYS: Final[tuple[tuple[frozenset[str], frozenset[str]], ...]] = (
    (frozenset({"--all"}), frozenset()),
    (frozenset({"--range"}), frozenset()),
    (frozenset({"--since", "--before"}), _WHERE),
    (frozenset({"--batch"}), frozenset()),
    (frozenset({"--minute", "--to-minute"}), frozenset()),
    (frozenset({"--from-file", "--until-file"}), _WHERE),
    (frozenset({"--from", "--until"}) | _WHERE, frozenset()),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Selector:
    """The options that select what to reprocess, as they were given."""

    topic: str | None = None
    """``--topic``."""
    partitions: tuple[int, ...] = ()
    """``--partition``, in order."""
    from_offset: int | None = None
    """``--from``."""
    until_offset: int | None = None
    """``--until``."""
    ranges: tuple[OffsetRange, ...] = ()
    """``--range``, in order."""
    since: datetime | None = None
    """``--since``, aware."""
    before: datetime | None = None
    """``--before``, aware."""
    batch_id: int | None = None
    """``--batch``."""
    minute: str | None = None
    """``--minute``."""
    to_minute: str | None = None
    """``--to-minute``."""
    from_file: Path | None = None
    """``--from-file``."""
    until_file: Path | None = None
    """``--until-file``."""
    everything: bool = False
    """``--all``."""

    @property
    def given(self) -> list[str]:
        """The options that were given, by name."""
        values = {
            "--topic": self.topic,
            "--partition": self.partitions or None,
            "--from": self.from_offset,
            "--until": self.until_offset,
            "--range": self.ranges or None,
            "--since": self.since,
            "--before": self.before,
            "--batch": self.batch_id,
            "--minute": self.minute,
            "--to-minute": self.to_minute,
            "--from-file": self.from_file,
            "--until-file": self.until_file,
            "--all": self.everything or None,
        }
        return [name for name, value in values.items() if value is not None]


def read_request(asked: Selector) -> Request:
    """The request that the options make.

    Raises:
        UsageError: The options select nothing, are incomplete, or mix two ways to select.
        ReplayRefusedError: A file cannot be read, or a time span ends before it begins.
    """
    _check_one_way(asked.given)
    if asked.ranges:
        return RangesAsked(ranges=asked.ranges)
    if asked.batch_id is not None:
        return BatchAsked(batch_id=asked.batch_id)
    if asked.minute is not None:
        return MinutesAsked(first=asked.minute, last=asked.to_minute or asked.minute)
    if asked.since is not None and asked.before is not None:
        return TimesAsked(
            since=asked.since, before=asked.before, topic=asked.topic, partitions=asked.partitions
        )
    return BoundsAsked(
        topic=asked.topic,
        partitions=asked.partitions,
        from_offset=asked.from_offset,
        until_offset=asked.until_offset,
        from_offsets=read_bounds(asked.from_file) if asked.from_file else {},
        until_offsets=read_bounds(asked.until_file) if asked.until_file else {},
    )


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
    for name, needed in (("--since", "--before"), ("--before", "--since")):
        if name in given and needed not in given:
            raise UsageError(f"{name} needs {needed}", next_step="name both ends of the time span")
    if "--to-minute" in given and "--minute" not in given:
        raise UsageError("--to-minute needs --minute", next_step="name the first minute as well")
