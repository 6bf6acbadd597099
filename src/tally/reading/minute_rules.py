"""By which rules the minutes of a result were counted, and what brings them up to date."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import groupby
from operator import attrgetter

from tally.aggregates.aggregate import fingerprint
from tally.config.pipeline import Pipeline
from tally.context import Context
from tally.errors import TallyError
from tally.formatting import plural, time_span
from tally.ledger.positions import PartitionRecord
from tally.ledger.replacements import ranges_of_minutes
from tally.ledger.rules import (
    OtherOffsets,
    OtherRule,
    folded_minutes,
    other_offsets,
    other_offsets_from_before,
    other_rules,
)
from tally.ledger.tables import Tables
from tally.model import KafkaSnapshot
from tally.mysql.transactions import Transaction
from tally.planning.serving import topic_of


class Rule(StrEnum):
    """By which rules a minute was counted."""

    TODAY = "today"
    OTHER = "other"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True, slots=True)
class Outdated:
    """Minutes of a result that were counted under other rules than today's."""

    minutes: int
    """How many."""
    first_minute: str
    """The first of them, ``YYYY-MM-DD HH:MM``."""
    last_minute: str
    """The last of them."""
    gone: int | None
    """How many of them Kafka no longer holds whole, so that no replay can update them; null when
    Kafka did not answer."""
    replayed: int
    """How many of them the replay brings up to date."""
    replay: str | None
    """The command that does it, for the longest span that Kafka holds; null when there is none."""

    def __str__(self) -> str:
        """What was found, and the command."""
        span = time_span(self.first_minute, self.last_minute)
        text = f"{plural(self.minutes, 'minute')} counted under other rules, {span}"
        if self.gone:
            gone = "any" if self.gone == self.minutes else self.gone
            text += f"; Kafka no longer holds all records of {gone} of them"
        if self.replay is None:
            return text
        held = ", if Kafka holds them," if self.gone is None else ""
        longest = ", the longest span," if self.replayed < self.minutes - (self.gone or 0) else ""
        brought = f"{plural(self.replayed, 'minute')}{longest} can be brought up to date{held}"
        return f"{text}; {brought} with: {self.replay}"


@dataclass(frozen=True, kw_only=True)
class MinuteRules:
    """The rules of a span of minutes."""

    ctx: Context
    """What is needed from outside."""
    pipeline: Pipeline
    """The pipeline."""
    fingerprint: str
    """Of today's rules."""
    others: Mapping[str, Sequence[OtherRule]]
    """What was counted under other rules, by minute, in order."""
    folded: frozenset[str]
    """Minutes with folded lines, whose rules are no longer known."""
    other_offsets: Sequence[OtherOffsets]
    """Offsets that are counted under other rules, in whichever minutes their lines are."""

    @classmethod
    def read(
        cls,
        ctx: Context,
        tx: Transaction,
        tables: Tables,
        pipeline: Pipeline,
        minutes: Sequence[str],
    ) -> "MinuteRules":
        """The rules of minutes in order, ``YYYY-MM-DD HH:MM:00``."""
        today, name = fingerprint(pipeline), pipeline.name
        span = (minutes[0], minutes[-1]) if minutes else None
        found = other_rules(tx, tables, name, today, *span) if span else []
        return cls(
            ctx=ctx,
            pipeline=pipeline,
            fingerprint=today,
            others={m: list(of) for m, of in groupby(found, key=attrgetter("log_time"))},
            folded=frozenset(folded_minutes(tx, tables, name, *span) if span else ()),
            other_offsets=other_offsets(tx, name, today),
        )

    def rule_of(self, minute: str) -> Rule:
        """By which rules a minute was counted; another rule counts more than an unknown one."""
        if minute in self.others:
            return Rule.OTHER
        return Rule.UNKNOWN if minute in self.folded else Rule.TODAY

    def fingerprints_of(self, minute: str) -> tuple[str, ...]:
        """The fingerprints of the other rules by which a minute was counted."""
        return tuple(
            dict.fromkeys(other.format_fingerprint for other in self.others.get(minute, ()))
        )

    @cached_property
    def kafka(self) -> KafkaSnapshot | None:
        """What Kafka holds of what is under other rules, None when it does not say.

        The counts are shown all the same.
        """
        # A topic that was taken out of the configuration can still be replayed.
        known = {other.partition.topic for other in self.other_offsets if other.is_current}
        topics = sorted(known | set(self.pipeline.topics))
        try:
            return self.ctx.kafka.snapshot(topics, read_committed=self.pipeline.reads_committed)
        except TallyError:
            return None

    @property
    def offsets_gone(self) -> int | None:
        """How many offsets under other rules are in segments that Kafka no longer holds whole.

        None when it did not say what it holds.
        """
        if not self.other_offsets:
            return 0
        if (kafka := self.kafka) is None:
            return None
        name, today = self.pipeline.name, self.fingerprint
        with self.ctx.database.transaction(read_only=True) as tx:
            return sum(
                other.offsets
                if (earliest := _earliest(other, kafka)) is None
                else other_offsets_from_before(tx, name, today, other, earliest)
                for other in self.other_offsets
            )

    @property
    def outdated(self) -> Outdated | None:
        """The minutes under other rules, None without one."""
        if not self.others:
            return None
        kafka = self.kafka
        minutes = [_short(minute) for minute in self.others]
        is_held = [
            kafka is None or all(_is_held(other, kafka) for other in others)
            for others in self.others.values()
        ]
        span = self._replayable(_longest(minutes, is_held))
        return Outdated(
            minutes=len(minutes),
            first_minute=minutes[0],
            last_minute=minutes[-1],
            gone=None if kafka is None else is_held.count(False),
            replayed=len(span),
            replay=_command(self.pipeline.name, span) if span else None,
        )

    def _replayable(self, span: Sequence[str]) -> Sequence[str]:
        """The end of a span of minutes of which a replay is not refused.

        A replay of minutes reads all segments with lines in them, those under today's rules too.
        """
        kafka = self.kafka
        if kafka is None or not span:
            return span
        with self.ctx.database.transaction(read_only=True) as tx:

            def is_refused(first: int) -> bool:
                ranges = ranges_of_minutes(tx, self.pipeline.name, span[first], span[-1])
                return any(
                    (held := kafka.partition(r.partition)) is None or held.earliest > r.from_offset
                    for r in ranges
                )

            # The fewer minutes, the fewer segments: what is not refused from one minute on is not
            # refused from a later one.
            return span[bisect_left(range(len(span)), True, key=lambda n: not is_refused(n)) :]


def _longest(minutes: Sequence[str], is_held: Sequence[bool]) -> list[str]:
    """The longest run of minutes that are held, the last of several."""
    runs: list[list[str]] = [[]]
    for minute, held in zip(minutes, is_held, strict=True):
        if held:
            runs[-1].append(minute)
        else:
            runs.append([])
    return max(reversed(runs), key=len)


def _command(pipeline: str, span: Sequence[str]) -> str:
    to = f" --to-minute '{span[-1]}'" if span[-1] != span[0] else ""
    return f"tally replay {pipeline} --minute '{span[0]}'{to} --reason '…'"


def _short(minute: str) -> str:
    return minute[: len("YYYY-MM-DD HH:MM")]


def _is_held(other: OtherRule, kafka: KafkaSnapshot) -> bool:
    earliest = _earliest(other, kafka)
    return earliest is not None and earliest <= other.from_offset


def _earliest(origin: PartitionRecord, kafka: KafkaSnapshot) -> int | None:
    """The first offset that a replay can read there; None when there is none."""
    topic = topic_of(kafka, origin.partition.topic, origin)
    if topic is None or not origin.is_current:
        return None
    held = topic.partitions.get(origin.partition.partition)
    return held.earliest if held is not None else None
