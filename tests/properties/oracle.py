"""What is checked after each step: the trace against the protocol, the audit, what readers see."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq

from tally.audit.audit import audit
from tests.campaigns import VARIABLE
from tests.properties.pipeline import PipelineUnderTest

AUDITS_EVERY: Final = 1 if os.environ.get(VARIABLE) else 4


@dataclass(slots=True)
class Oracle:
    """Checks a pipeline after each step."""

    pipeline: PipelineUnderTest
    audits_every: int | None = AUDITS_EVERY
    """How many checks come to one audit, which also shows what a late commit has not shown; None
    for an audit at the end alone."""
    _checks: int = 0

    @property
    def commits(self) -> int:
        """How many batches were committed, and accepted by the model."""
        return self.pipeline.recorder.model.cases["commit"]

    def check(self, *, with_audit: bool = False) -> None:
        """Raise unless the model accepts what was done, and the audit and readers agree."""
        self._checks += 1
        with_audit |= bool(self.audits_every and self._checks % self.audits_every == 0)
        self.pipeline.recorder.check(everything=with_audit)
        self._check_through()
        if with_audit:
            with self.pipeline.wire.past_the_proxy():
                verdict = audit(self.pipeline.ctx, self.pipeline.name)
            assert verdict.holds, verdict.findings
            self._check_rows()

    def _check_through(self) -> None:
        """All is counted or lost that Kafka had by the moment that the ledger names."""
        facts, kafka = self.pipeline.recorder.model.facts, self.pipeline.kafka
        if not facts.through or kafka.was_stale:
            return
        for number, (cluster, topic_id, state) in facts.generations.items():
            logs = kafka.generation(cluster, topic_id).logs if state == "current" else []
            for partition, log in enumerate(logs):
                _, at = facts.positions.get((number, partition), (0, 0))
                early = [
                    (offset, came)
                    for offset, record in log.held.items()
                    if offset >= at and (came := kafka.arrivals[record.time]) <= facts.through
                ]
                assert not early, f"{facts.through}: {number}/{partition} at {at}, and {early}"

    def _check_rows(self) -> None:
        """Readers see the expected lines, each once, where they are kept; the audit shows them."""
        view = self.pipeline.pipeline.rows_view
        if view is None:
            return
        is_in_files = self.pipeline.pipeline.delivery == "files"
        facts = self.pipeline.recorder.model.facts
        columns = ("topic_id", "partition_id", "record_offset", "log_time")
        if is_in_files:
            files = [row["file"] for row in self.pipeline.rows(f"select file from `{view}`")]
            rows = []
            for file in files:
                path = file.removeprefix("file://")
                rows += pq.read_table(path, columns=list(columns)).to_pylist()
            folder = (self.pipeline.pipeline.files_url or "").removeprefix("file://")
            listed = Path(folder, "_live/files.txt")
            text = listed.read_text() if listed.exists() else ""
            assert sorted(text.splitlines()) == sorted(files), "the list beside them is another"
        else:
            rows = self.pipeline.rows(f"select {', '.join(columns)} from `{view}`")
        found = sorted((*list(row.values())[:3], str(row["log_time"])) for row in rows)
        expected = sorted(
            (facts.generations[s.place[0]][1], s.place[1], offset, minute)
            for s in facts.live().values()
            if s.counts is not None
            for offset, minute in s.counts.lines
        )
        assert found == expected, f"readers see {found}, the records say {expected}"
        # Dropped files stay for an hour.
        useless = "s.state in ('open', 'sealed')" if is_in_files else "s.state <> 'live'"
        waiting = self.pipeline.rows(
            f"select s.* from `{view}__sets` s left join segment l on l.segment_id = s.segment_id"
            f" where {useless} and coalesce(l.state, 'gone') <> 'planned'"
        )
        assert not waiting, f"sets of no use: {waiting}"
