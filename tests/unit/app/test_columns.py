"""The columns of the ledger's records: for the terminal, the console's pages and its exports."""

import csv
import io
from typing import Any

import pytest
import rich.table
from tests.unit.values import AT, P0, blank, kafka, known, pipeline, span, totals

from tally.airflow.console import line_pages, pages
from tally.airflow.console.drawing import as_csv
from tally.airflow.console.page import Table
from tally.cli.output import Output
from tally.ledger.dead_letters import DeadLetterRecord
from tally.ledger.decisions import LossRecord
from tally.ledger.invariants import Violation
from tally.ledger.records import BatchRecord, Replaced
from tally.ledger.replays import ReplayRecord
from tally.ledger.results import ResultRow
from tally.model import BatchKind, BatchState, LossCause, ReplayState, SegmentState
from tally.reading import columns
from tally.reading.batches import BatchView, SegmentView
from tally.reading.columns import Column
from tally.reading.counts import Columns
from tally.reading.dead_letters import DeadLetterView
from tally.status.state import PipelineState
from tally.status.status import StatusView, WaitingPartition, WaitingView, status_of
from tally.views import CountedRange

WHEN = "2026-11-20 14:00:00"
BATCH = blank(
    BatchRecord,
    batch_id=1234,
    kind=BatchKind.REPLAY,
    replay_id=7,
    state=BatchState.COMMITTED,
    attempt=1,
    segments=2,
    superseded=1,
    offsets=10_000,
    records=5_000,
    planned_at=AT,
    committed_at=AT,
)
SEGMENT = SegmentView(
    range=span(300, 310),
    totals=totals(matched=4_000, malformed=3),
    segment_id=1234,
    topic_id="A",
    state=SegmentState.SUPERSEDED,
    superseded_by=1300,
    superseded_by_batch=43,
    replaces=tuple(Replaced(segment_id=n, batch_id=n % 2) for n in range(3)),
)
PLANNED = blank(
    SegmentView, range=span(0, 5), segment_id=8, state=SegmentState.PLANNED, replaces=()
)
LOSS = blank(
    LossRecord,
    lost_range_id=3,
    range=span(300, 1_310),
    cause=LossCause.EXPIRED,
    state="open",
    detected_at=AT,
)
REPLAY = blank(
    ReplayRecord,
    replay_id=7,
    state=ReplayState.OPEN,
    request="all",
    reason="ticket 17",
    requested_by="me",
    requested_at=AT,
    batches=2_000,
    committed=1,
    offsets=9,
    offsets_committed=3,
)
LETTER = DeadLetterView.of(
    DeadLetterRecord(
        batch_id=42,
        partition=P0,
        offset=3001,
        reason="no-match",
        value=b"x" * 200,
        value_bytes=200,
        written_at=AT,
        log_time="2026-11-20 14:05:00",
    )
)
STATUS: StatusView = status_of(
    PipelineState(
        pipeline=pipeline(),
        now=AT,
        known=known(1000),
        planned_until={P0: 1005},
        kafka=kafka((0, 3000)),
    )
)


@pytest.mark.parametrize(
    ("described", "record", "line"),
    [
        (
            columns.BATCH,
            BATCH,
            f"1234 | replay 7 | committed, partly replaced | 1 | {WHEN} | {WHEN} | 10,000 | 5,000"
            + " | -" * 3,
        ),
        (
            columns.SEGMENT,
            SEGMENT,
            "1234 | alog/0 | [300, 310) | superseded by batch 43 | 4,003 | 4,000 | 3 | 3 | 1300",
        ),
        (columns.SEGMENT, PLANNED, "8 | alog/0 | [0, 5) | planned | - | - | - | - | -"),
        (columns.PARTITION, STATUS.partitions[0], "alog/0 | 0 | 1000 | 3000 | 2,000 | ok | A"),
        (
            columns.LOSS,
            LOSS,
            "alog/0 | [300, 1310) | 1,010 | expired | open | 2026-11-20 14:00:00 UTC | - | - | -",
        ),
        (
            columns.DEAD_LETTER,
            LETTER,
            f"42 | alog/0 | 3001 | 2026-11-20 14:05 | {AT:%F %T} | no-match | 200 | {'x' * 119}…",
        ),
        (
            columns.REPLAY,
            REPLAY,
            "7 | open | 2026-11-20 14:00:00 UTC | me | 1/2,000 | 3/9 | all | ticket 17",
        ),
        (
            columns.COUNTED_RANGE,
            CountedRange(range=span(0, 5), totals=None),
            "alog/0 | [0, 5) | - | - | -",
        ),
        (columns.RANGE, span(0, 1_005), "alog/0 | [0, 1005) | 1,005"),
        (columns.VIOLATION, Violation(check="a", where="b", detail="c"), "a | b | c"),
    ],
)
def test_a_terminal_shows_each_record(
    described: tuple[Column, ...], record: Any, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all columns; counts have separators, and what is pasted into a command has none."""
    shown: list[list[str]] = []
    out = Output()
    out.wide = True
    monkeypatch.setattr(
        rich.table.Table, "add_row", lambda _, *cells: shown.append([cell.plain for cell in cells])
    )
    out.records(described, [record])
    assert [" | ".join(row) for row in shown] == [line]


def exported(table: Table) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(as_csv(table), newline="")))


def test_the_console_shows_and_exports_each_record() -> None:
    """The same records; a number is a number, and nothing is empty."""
    view = blank(
        BatchView,
        ranges=(SEGMENT, PLANNED),
        columns=Columns(labels=("level",), has_bytes=False),
        minutes=(
            ResultRow(
                log_time="2026-11-20 14:00:00", labels={"level": "E"}, log_count=3, log_bytes=None
            ),
        ),
    )
    ranges, rows = map(exported, pages.batch_tables(view))
    assert [row["replaces"] for row in ranges] == ["0, 1", ""]
    assert [row["malformed"] for row in ranges] == ["3", ""]
    assert rows == [{"minute": "2026-11-20 14:00", "label_level": "E", "lines": "3"}]
    (counted,) = exported(Table("batches", "Batches", columns.BATCH, [BATCH]))
    assert (counted["kind"], counted["seconds"]) == ("replay", "0.0")
    (lost,) = exported(Table("open", "Open", columns.LOSS, [LOSS]))
    assert (lost["partition"], lost["offsets"], lost["until_offset"]) == ("alog/0", "1010", "1310")
    (letter,) = exported(Table("letters", "", columns.DEAD_LETTER, [LETTER]))
    assert (letter["value"], letter["partition"]) == ("x" * 200, "alog/0")
    assert exported(Table("reasons", "", line_pages.REASONS, [("no-match", 3)])) == [
        {"reason": "no-match", "dead_letters": "3"}
    ]
    oldest = {P0: WaitingPartition(written_at=AT, expires_at=None)}
    asked = WaitingView(asked_at=AT, status=STATUS, oldest=oldest, times_error=None)
    (partition,) = exported(pages.partitions_table(STATUS, asked))
    assert (partition["condition"], partition["planned_offsets"]) == ("ok", "5")
    assert partition["oldest_written_at"] == AT.isoformat()
    assert exported(pages.partitions_table(STATUS, None))[0]["condition"] == ""
    keys = [column.key for column in columns.REPLAY if column.title]
    assert len(keys) == len(set(keys)) == 8
