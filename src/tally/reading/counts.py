"""Reading the result: by which rules its minutes were counted, and what brings them up to date."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Final, Self

from tally.aggregates.aggregate import fingerprint
from tally.config.pipeline import Pipeline
from tally.context import Context, Transaction
from tally.errors import TallyError
from tally.formatting import plural, time_span
from tally.ledger import rules
from tally.ledger.positions import PartitionRecord
from tally.ledger.progress import Completion, completion_of, progress_of
from tally.ledger.results import ResultRow, ranges_of_minutes, result_rows
from tally.ledger.rules import OtherRule
from tally.ledger.tables import Tables, tables_to_read
from tally.model import KafkaSnapshot
from tally.views import ErrorView, view_of

_NONE_HELD: Final = 2**63 - 1
"""As the first offset of a partition of which Kafka holds nothing."""


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


@dataclass(frozen=True, kw_only=True, slots=True)
class CountedRowView(ResultRow, Completion):
    """A row of the result, whether its minute is complete, and by which rules it was counted."""

    rule: Rule
    """``unknown``: some of its lines are of folded segments."""
    other_fingerprints: tuple[str, ...]
    """Fingerprints of the other rules; empty under today's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Columns:
    """The columns of a result besides the minute and its lines."""

    labels: tuple[str, ...]
    """Columns of the labels, including labels that are no longer configured."""
    has_bytes: bool
    """Whether bytes are measured."""

    @classmethod
    def of(cls, tables: Tables) -> Self:
        """The columns of some tables."""
        labels = tuple(label.column for label in tables.labels)
        return cls(labels=labels, has_bytes="log_bytes" in tables.sums)


@dataclass(frozen=True, kw_only=True, slots=True)
class CountsView:
    """Minutes of the result."""

    pipeline: str
    """The pipeline."""
    table: str
    """Its result table."""
    columns: Columns
    """Which columns it has."""
    levels: tuple[str, ...]
    """The levels that are counted now; empty for any."""
    rules: str
    """The rules that lines are counted by now, as text."""
    fingerprint: str
    """Of these rules."""
    outdated: Outdated | None
    """The minutes with lines that were counted under other rules; null when there is none."""
    other_offsets: int
    """Offsets that are counted under other rules, where today's may find more lines."""
    other_offsets_gone: int | None
    """How many of them Kafka no longer holds in whole segments; null when it did not answer."""
    minutes: tuple[CountedRowView, ...]
    """Oldest first, then by labels; a minute without lines has no row."""
    total: int
    """Lines of all these minutes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CountsListView:
    """The results of several pipelines."""

    counts: tuple[CountsView, ...]
    """The results that could be read, by pipeline."""
    errors: Mapping[str, ErrorView]
    """Why another pipeline is missing, by its name."""


def counts(
    ctx: Context,
    name: str,
    *,
    last: int | None = None,
    since: str | None = None,
    until: str | None = None,
    complete: bool = False,
) -> CountsView:
    """The result as it is now; all minutes by default.

    Args:
        ctx: What is needed from outside.
        name: The pipeline.
        last: Only this many of the latest minutes.
        since: The first minute, ``YYYY-MM-DD HH:MM`` on the lines' own clock.
        until: The last minute, inclusive.
        complete: Only minutes that are complete, amended ones included.

    Raises:
        UnknownPipelineError: No such pipeline is configured.
        MySQLUnavailableError: The server did not answer.
    """
    pipeline, today = ctx.settings.pipeline(name), fingerprint(ctx.settings.pipeline(name))
    with ctx.database.transaction(isolation="repeatable read", read_only=True) as tx:
        tables = tables_to_read(tx, pipeline)
        before = progress_of(tx, name).complete_before or "" if complete else None
        rows = result_rows(tx, tables, last=last, since=since, until=until, before=before)
        found: Sequence[OtherRule] = ()
        folded: set[str] = set()
        known: dict[str, Completion] = {}
        if rows:
            span = (rows[0].log_time, rows[-1].log_time)
            found = rules.other_rules(tx, tables, name, today, *span)
            folded = rules.folded_minutes(tx, tables, name, *span)
            known = completion_of(tx, tables, name, *span)
        elsewhere = rules.other_offsets(tx, name, today)
    others = {minute: list(of) for minute, of in groupby(found, key=attrgetter("log_time"))}
    outdated: Outdated | None = None
    gone: int | None = 0
    if elsewhere:
        kafka = _snapshot(ctx, pipeline, elsewhere)
        with ctx.database.transaction(read_only=True) as tx:
            outdated = _outdated(tx, name, others, kafka) if others else None
            lost = [
                rules.other_offsets_before(tx, name, today, other, _earliest(other, kafka))
                for other in elsewhere
                if kafka
            ]
            gone = sum(lost) if kafka else None
    return CountsView(
        pipeline=name,
        table=tables.result,
        columns=Columns.of(tables),
        levels=tuple(pipeline.levels),
        rules=pipeline.rules,
        fingerprint=today,
        outdated=outdated,
        other_offsets=sum(other.offsets for other in elsewhere),
        other_offsets_gone=gone,
        minutes=tuple(
            _counted(row, known[row.log_time], others.get(row.log_time, ()), folded) for row in rows
        ),
        total=sum(row.log_count for row in rows),
    )


def _counted(
    row: ResultRow, known: Completion, others: Sequence[OtherRule], folded: set[str]
) -> CountedRowView:
    """A row with its rules; another rule counts more than an unknown one."""
    rule = Rule.UNKNOWN if row.log_time in folded else Rule.TODAY
    return view_of(
        CountedRowView,
        row,
        known,
        rule=Rule.OTHER if others else rule,
        other_fingerprints=tuple(dict.fromkeys(other.format_fingerprint for other in others)),
    )


def _snapshot(
    ctx: Context, pipeline: Pipeline, elsewhere: Sequence[rules.OtherOffsets]
) -> KafkaSnapshot | None:
    """What Kafka holds of what is under other rules, None when it does not say.

    The counts are shown all the same.
    """
    # A topic that was taken out of the configuration can still be replayed.
    known = {other.partition.topic for other in elsewhere if other.is_current}
    topics = sorted(known | set(pipeline.topics))
    try:
        return ctx.kafka.snapshot(topics, read_committed=pipeline.reads_committed)
    except TallyError:
        return None


def _outdated(
    tx: Transaction,
    name: str,
    others: Mapping[str, Sequence[OtherRule]],
    kafka: KafkaSnapshot | None,
) -> Outdated:
    """The minutes under other rules."""
    minutes = [minute[: len("YYYY-MM-DD HH:MM")] for minute in others]
    is_held = [
        kafka is None or all(_earliest(other, kafka) <= other.from_offset for other in of)
        for of in others.values()
    ]
    span = _longest(minutes, is_held)
    if kafka is not None and span:
        span = _replayable(tx, name, span, kafka)
    replay = None
    if span:
        to = f" --to-minute '{span[-1]}'" if len(span) > 1 else ""
        replay = f"tally replay {name} --minute '{span[0]}'{to} --reason '…'"
    return Outdated(
        minutes=len(minutes),
        first_minute=minutes[0],
        last_minute=minutes[-1],
        gone=None if kafka is None else is_held.count(False),
        replayed=len(span),
        replay=replay,
    )


def _replayable(
    tx: Transaction, name: str, span: Sequence[str], kafka: KafkaSnapshot
) -> Sequence[str]:
    """The end of a span of minutes of which a replay is not refused.

    A replay of minutes reads all segments with lines in them, those under today's rules too.
    """

    def is_granted(first: int) -> bool:
        return all(
            (held := kafka.partition(r.partition)) is not None and held.earliest <= r.from_offset
            for r in ranges_of_minutes(tx, name, span[first], span[-1])
        )

    # The fewer minutes, the fewer segments: what is not refused from one minute on is not refused
    # from a later one.
    return span[bisect_left(range(len(span)), True, key=is_granted) :]


def _longest(minutes: Sequence[str], is_held: Sequence[bool]) -> Sequence[str]:
    """The longest run of minutes that are held, the last of several."""
    runs = groupby(zip(minutes, is_held, strict=True), key=itemgetter(1))
    held = [[minute for minute, _ in run] for are_held, run in runs if are_held]
    return max(reversed(held), key=len, default=[])


def _earliest(origin: PartitionRecord, kafka: KafkaSnapshot) -> int:
    """The first offset that a replay can read there; beyond all offsets when there is none."""
    held = kafka.partition(origin.partition, of=origin) if origin.is_current else None
    return held.earliest if held else _NONE_HELD
