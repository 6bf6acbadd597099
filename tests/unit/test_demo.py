"""What the demonstration's producer knows by itself, and the line about a batch."""

import re
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from tally import clock
from tally.config.servers import KafkaSettings
from tally.ledger.reading import BatchRecord
from tally.model import BatchKind, BatchState, TopicPartition
from tally_local.demo.show import commit_line
from tally_local.demo.traffic import Traffic

AT = datetime(2026, 11, 20, 14, 0, 0, tzinfo=UTC)


class Writer:
    """Takes every line, in the order in which it comes."""

    written: list[tuple[int, bytes | None]]

    def __init__(self, _: KafkaSettings) -> None:
        Writer.written = []

    def write(
        self,
        partition: TopicPartition,
        value: bytes | None,
        delivered: Callable[[int], None],
        failed: Callable[[str], None],  # noqa: ARG002 - the writer's signature
    ) -> None:
        """Every partition has offsets of its own."""
        offset = sum(where == partition.partition for where, _ in Writer.written)
        Writer.written.append((partition.partition, value))
        delivered(offset)

    def flush(self) -> None:
        """Nothing is under way."""


@pytest.mark.parametrize("levels", [["ERROR"], ["ERROR", "WARN"], ["FATAL", "DEBUG"]])
def test_the_producer_knows_its_lines_at_any_levels(
    levels: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what it wrote, and below the offsets that were asked for."""
    monkeypatch.setattr("tally_local.demo.traffic.LineWriter", Writer)
    moments = iter(lambda: AT, None)
    monkeypatch.setattr(clock, "now", lambda: next(moments))
    traffic = Traffic(KafkaSettings(), "alog", partitions=2, levels=levels, rate=4_000, seed=7)
    with traffic:
        while len(Writer.written) < 1_000:
            time.sleep(0.01)
    pattern = re.compile(rb"2026-11-20 14:00:00 (" + "|".join(levels).encode() + rb") ")
    first = [value for where, value in Writer.written if where == 0]
    wanted = Counter(bool(value and pattern.match(value)) for value in first[:300])
    assert wanted[True] > 0
    assert traffic.lines_before({0: 300}) == {"2026-11-20 14:00": wanted[True]}


def record(**values: Any) -> BatchRecord:
    """A committed batch."""
    nothing = dict.fromkeys(BatchRecord.__slots__)
    told = {
        "batch_id": 7,
        "kind": BatchKind.INGEST,
        "state": BatchState.COMMITTED,
        "claimed_at": AT,
        "committed_at": AT,
        "segments": 1,
        "superseded": 0,
        "records": 1_000,
        "matched": 300,
    }
    return BatchRecord(**{**nothing, **told, **values})


def test_a_batch_of_a_replay_is_told_as_one() -> None:
    """What was counted is not called errors: other levels may count."""
    assert commit_line(record(), []).startswith(
        "14:00:00  batch 7  1,000 records  300 counted  0 malformed"
    )
    assert "  batch 7 of replay 2  " in commit_line(record(replay_id=2), [])
