"""The demonstration producer's own counts, and the printed line about a batch."""

import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from tests.fakes import ManualClock
from tests.unit.values import AT, blank

from tally.ledger.reading import BatchRecord
from tally.model import BatchKind, BatchState, TopicPartition
from tally_local.demo.show import commit_line
from tally_local.demo.traffic import Traffic


class _MemoryWriter:
    """Keeps every record, and reports it as delivered at once."""

    def __init__(self) -> None:
        self.records: list[tuple[TopicPartition, bytes | None]] = []
        self._ends: Counter[TopicPartition] = Counter()

    def write(
        self,
        partition: TopicPartition,
        value: bytes | None,
        delivered: Callable[[int], None],
        failed: Callable[[str], None],  # noqa: ARG002 - the port's signature
    ) -> None:
        self.records.append((partition, value))
        self._ends[partition] += 1
        delivered(self._ends[partition] - 1)

    def flush(self) -> None:
        pass


def test_the_producer_knows_its_lines_at_any_levels() -> None:
    """It counts what it wrote below the given offsets."""
    for levels in (["ERROR"], ["ERROR", "WARN"], ["FATAL", "DEBUG"]):
        writer, clock = _MemoryWriter(), ManualClock(AT)
        options = {"partitions": 2, "levels": levels, "rate": 4_000, "seed": 7, "clock": clock}
        with Traffic(writer, "alog", **options) as traffic:
            while len(writer.records) < 1_000:
                time.sleep(0.01)
        pattern = re.compile(rb"2026-11-20 14:00:00 (" + "|".join(levels).encode() + rb") ")
        first = [value for where, value in writer.records if where.partition == 0]
        wanted = sum(bool(value and pattern.match(value)) for value in first[:300])
        assert wanted > 0
        assert traffic.lines_before({0: 300}) == {"2026-11-20 14:00": wanted}


def test_a_batch_of_a_replay_is_told_as_one() -> None:
    """The counted lines are not called errors, because other levels may count."""
    found = blank(
        BatchRecord,
        kind=BatchKind.INGEST,
        state=BatchState.COMMITTED,
        batch_id=7,
        segments=1,
        claimed_at=AT,
        committed_at=AT,
        superseded=0,
        records=1_000,
        matched=300,
    )
    told = "14:00:00  batch 7  1,000 records  300 matched  0 malformed"
    assert commit_line(found, []).startswith(told)
    assert "  batch 7 of replay 2  " in commit_line(replace(found, replay_id=2), [])
