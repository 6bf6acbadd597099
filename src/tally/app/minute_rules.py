"""By which rules the minutes of a result were counted, and what brings them up to date."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from operator import attrgetter

from tally.aggregates.fingerprint import fingerprint
from tally.config.pipeline import Pipeline
from tally.errors import TallyError
from tally.formatting import plural, time_span
from tally.ledger.rules import OtherRule, folded_minutes, other_rules
from tally.ledger.tables import Tables
from tally.model import KafkaSnapshot
from tally.mysql.transactions import Transaction
from tally.pipeline.context import Context


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
    """How many of them Kafka no longer holds whole, so that no replay can bring them up to date;
    null when Kafka did not answer."""
    replay: str | None
    """The command that brings the others up to date; null when there is no other."""

    def __str__(self) -> str:
        """What was found, and the command."""
        span = time_span(self.first_minute, self.last_minute)
        text = f"{plural(self.minutes, 'minute')} counted under other rules, {span}"
        if self.gone:
            text += f"; Kafka no longer holds {'any' if self.replay is None else self.gone} of them"
        if self.replay is None:
            return text
        return f"{text}; up to date with: {self.replay}"


@dataclass(frozen=True, kw_only=True, slots=True)
class MinuteRules:
    """The rules of a span of minutes."""

    fingerprint: str
    """Of today's rules."""
    others: Mapping[str, Sequence[OtherRule]]
    """What was counted under other rules, by minute, in order."""
    folded: frozenset[str]
    """Minutes with folded lines, whose rules are no longer known."""

    @classmethod
    def read(
        cls, tx: Transaction, tables: Tables, pipeline: Pipeline, minutes: Sequence[str]
    ) -> "MinuteRules":
        """The rules of minutes in order, ``YYYY-MM-DD HH:MM:00``."""
        today = fingerprint(pipeline)
        if not minutes:
            return cls(fingerprint=today, others={}, folded=frozenset())
        span = (minutes[0], minutes[-1])
        found = other_rules(tx, tables, pipeline.name, today, *span)
        return cls(
            fingerprint=today,
            others={m: list(of) for m, of in groupby(found, key=attrgetter("log_time"))},
            folded=frozenset(folded_minutes(tx, tables, pipeline.name, *span)),
        )

    def rule_of(self, minute: str) -> Rule:
        """By which rules a minute was counted; another rule is told before an unknown one."""
        if minute in self.others:
            return Rule.OTHER
        return Rule.UNKNOWN if minute in self.folded else Rule.TODAY

    def fingerprints_of(self, minute: str) -> tuple[str, ...]:
        """The fingerprints of the other rules by which a minute was counted."""
        return tuple(dict.fromkeys(other.fingerprint for other in self.others.get(minute, ())))

    def outdated(self, ctx: Context, pipeline: Pipeline) -> Outdated | None:
        """The minutes under other rules, None without one; Kafka is asked what it still holds."""
        if not self.others:
            return None
        kafka = _asked(ctx, pipeline)
        minutes = [_short(minute) for minute in self.others]
        held = [
            _short(minute)
            for minute, others in self.others.items()
            if kafka is None or all(_is_held(other, kafka) for other in others)
        ]
        replay = None
        if held:
            replay = f"tally replay {pipeline.name} --minute '{held[0]}'"
            replay += f" --to-minute '{held[-1]}'" if held[-1] != held[0] else ""
        return Outdated(
            minutes=len(minutes),
            first_minute=minutes[0],
            last_minute=minutes[-1],
            gone=None if kafka is None else len(minutes) - len(held),
            replay=replay,
        )


def _short(minute: str) -> str:
    return minute[: len("YYYY-MM-DD HH:MM")]


def _asked(ctx: Context, pipeline: Pipeline) -> KafkaSnapshot | None:
    """What Kafka holds; None when it does not say: the counts are shown all the same."""
    try:
        return ctx.kafka.snapshot(pipeline.topics, read_committed=pipeline.reads_committed)
    except TallyError:
        return None


def _is_held(other: OtherRule, kafka: KafkaSnapshot) -> bool:
    held = kafka.partition(other.partition)
    return other.is_current and held is not None and held.earliest <= other.from_offset
