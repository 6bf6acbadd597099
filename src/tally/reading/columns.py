"""The columns of the ledger's records: for the terminal, the console's pages and its exports."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from operator import attrgetter
from typing import Any, Final

from tally.formatting import ABSENT, first_of
from tally.ledger.records import BatchRecord

Cell = str | int | float | bool | datetime | None

REPLACED_NAMED: Final = 20
"""Batches that a cell names."""
VALUE_CHARACTERS: Final = 120
"""Characters of a dead letter that a terminal shows."""


class Kind(Enum):
    """How a terminal shows the values of a column."""

    WORD = "as they are"
    TEXT = "broken between words where the terminal is narrow"
    COUNT = "to the right, with separators between thousands"
    OFFSET = "to the right, to be pasted into the next command"


WORD, TEXT, COUNT, OFFSET = Kind


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    key: str
    """Its name in an export, and of the record's attribute unless ``of`` says otherwise."""
    title: str = ""
    """Its heading on a page of the console, which does not show it without one."""
    header: str = ""
    """Its heading on a terminal, which does not show it without one."""
    kind: Kind = WORD
    """How a terminal shows it."""
    wide: bool = False
    """Whether a terminal shows it with ``--wide`` alone."""
    of: Callable[[Any], Cell] | None = None
    """Its value of a record."""
    width: int | None = None
    """Characters that a terminal shows of it."""
    is_raw: bool = False
    """Whether a page shows its texts as they are written, in a fixed width."""

    def value(self, record: Any) -> Cell:
        """The value of a record: a plain text for one of an enumeration."""
        found = (self.of or attrgetter(self.key))(record)
        return str(found) if isinstance(found, str) else found


def _seconds(batch: BatchRecord) -> float | None:
    """From its plan to its commit; None before that."""
    if batch.committed_at is None:
        return None
    return round(sum(seconds for step, seconds in batch.steps.items() if step != "planned"), 1)


def _kind(batch: BatchRecord) -> str:
    return f"{batch.kind}" if batch.replay_id is None else f"{batch.kind} {batch.replay_id}"


def _superseded(segment: Any) -> str:
    by = f" by batch {segment.superseded_by_batch}" if segment.superseded_by else ""
    return f"{segment.state}{by}"


def _replaced(segment: Any) -> str:
    """The batches that a segment replaces, the first of them where there are many."""
    return first_of(sorted({one.batch_id for one in segment.replaces}), REPLACED_NAMED)


def _total(key: str) -> Callable[[Any], int | None]:
    """What was found in a segment; None until it is counted."""
    return lambda segment: segment.totals and getattr(segment.totals, key)


def _done(done: str, among: str) -> Callable[[Any], str]:
    """How much of a replay is done: ``1/2,000``."""
    return lambda replay: f"{getattr(replay, done):,}/{getattr(replay, among):,}"


def _range(record: Any) -> Any:
    """The range of a record, or the record if it is one, or has a partition alone."""
    return getattr(record, "range", record)


PLACE: Final = Column("partition", "partition", "PARTITION", of=lambda r: str(_range(r).partition))
SPAN: Final = Column("span", "", "RANGE", of=lambda r: _range(r).span)
ENDS: Final = (
    Column("from_offset", "from", of=lambda r: _range(r).from_offset),
    Column("until_offset", "until", of=lambda r: _range(r).until_offset),
)
OFFSETS: Final = Column("offsets", "offsets", "OFFSETS", COUNT, of=lambda r: _range(r).offsets)

RANGE: Final = (PLACE, SPAN, OFFSETS)

BATCH: Final = (
    Column("batch_id", "batch", "BATCH", OFFSET),
    Column("kind", "", "KIND", of=_kind),
    Column("kind", "kind"),
    Column("state", "state", "STATE", TEXT, of=attrgetter("standing")),
    Column("attempt", "attempt", "ATTEMPT", OFFSET, wide=True),
    Column("planned_at", "planned", "PLANNED (UTC)", wide=True),
    Column("committed_at", "committed", "COMMITTED (UTC)"),
    Column("seconds", "seconds", of=_seconds),
    Column("offsets", "", "OFFSETS", COUNT, wide=True),
    Column("records", "records", "RECORDS", COUNT),
    Column("matched", "counted", "MATCHED", COUNT),
    Column("malformed", "dead letters", "MALFORMED", COUNT),
    Column("continuations", "", "CONTINUATIONS", COUNT, wide=True),
)

SUMS: Final = (
    Column("records", "records", "RECORDS", COUNT, of=_total("records")),
    Column("matched", "counted", "MATCHED", COUNT, of=_total("matched")),
    Column("unmatched", "not counted", of=_total("unmatched")),
    Column("continuations", "continuation lines", of=_total("continuations")),
    Column("malformed", "dead letters", "MALFORMED", COUNT, of=_total("malformed")),
)
"""What was found in a segment."""

SEGMENT: Final = (
    Column("segment_id", "", "SEGMENT", OFFSET, wide=True),
    PLACE,
    SPAN,
    *ENDS,
    Column("state", "state"),
    Column("state", "", "STATE", TEXT, of=_superseded),
    *SUMS,
    Column("superseded_by_batch", "superseded by batch"),
    Column("replaces", "replaces batches", of=_replaced),
    Column("replaces", "", "REPLACES", COUNT, wide=True, of=lambda s: len(s.replaces) or None),
    Column("superseded_by", "", "SUPERSEDED BY", OFFSET, wide=True),
)

PARTITION: Final = (
    PLACE,
    Column("condition", "condition"),
    Column("start_offset", "start", "START", OFFSET, wide=True),
    Column("next_offset", "next", "NEXT", OFFSET),
    Column("planned_offsets", "planned, not counted"),
    Column("kafka_earliest", "Kafka's first"),
    Column("kafka_end", "Kafka's end", "END", OFFSET),
    Column("lag_offsets", "lag", "LAG", COUNT),
    Column("condition", "", "STATE", TEXT),
    Column("topic_id", "", "TOPIC ID", wide=True),
)

LOSS: Final = (
    Column("lost_range_id", "loss"),
    PLACE,
    SPAN,
    *ENDS,
    replace(OFFSETS, wide=True),
    Column("cause", "cause", "CAUSE", TEXT),
    Column("state", "state", "STATE"),
    Column("detected_at", "detected", "DETECTED"),
    Column("decided_at", "decided", "DECIDED", wide=True),
    Column("decided_by", "by", "BY", wide=True),
    Column("reason", "reason", "REASON", wide=True),
)

ERASURE: Final = (
    PLACE,
    SPAN,
    replace(OFFSETS, wide=True),
    Column("requested_at", "erased", "ERASED"),
    Column("requested_by", "by", "BY"),
    Column("reason", "reason", "REASON"),
)

DEAD_LETTER: Final = (
    Column("batch_id", "batch", "BATCH", OFFSET),
    PLACE,
    Column("offset", "offset", "OFFSET", OFFSET),
    Column("log_time", "minute", "MINUTE", of=lambda one: one.log_time and one.log_time[:16]),
    Column("written_at", "written", "WRITTEN (UTC)", wide=True),
    Column("reason", "reason", "REASON"),
    Column("value_bytes", "bytes", "BYTES", COUNT),
    Column("value", "value", is_raw=True),
    Column("value", "", "VALUE", TEXT, width=VALUE_CHARACTERS, of=lambda one: one.value or ABSENT),
    Column("value_base64", "exact bytes, Base64", is_raw=True),
)

LINE: Final = (
    PLACE,
    Column("offset", "offset", "OFFSET", OFFSET),
    Column("value", "line", is_raw=True),
    Column("value", "", "LINE", TEXT),
)

REPLAY: Final = (
    Column("replay_id", "replay", "REPLAY", OFFSET),
    Column("state", "state", "STATE"),
    Column("requested_at", "requested", "REQUESTED"),
    Column("requested_by", "by", "BY", wide=True),
    Column("request", "what"),
    Column("committed", "committed"),
    Column("batches", "of batches"),
    Column("batches", "", "BATCHES", COUNT, of=_done("committed", "batches")),
    Column("offsets", "", "OFFSETS", COUNT, wide=True, of=_done("offsets_committed", "offsets")),
    Column("request", "", "ASKED FOR", TEXT),
    Column("reason", "reason", "REASON", wide=True),
)

VIOLATION: Final = (
    Column("check", "check", "CHECK", TEXT),
    Column("where", "where", "WHERE", TEXT),
    Column("detail", "what", "WHAT", TEXT),
)

COUNTED_RANGE: Final = (PLACE, SPAN, *SUMS)
