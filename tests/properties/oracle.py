"""The oracle: the expected result from the test's own records, and the invariants.

It takes two things from the ledger: which ranges are live, by which attempt of which batch, and
which losses were accepted. The records in them come from the model's copy of all that was ever
written, as that attempt read them. Accepted losses must once have been gone from Kafka, and start
offsets must be offsets that Kafka has answered.
"""

import os
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq

from tally.audit.audit import audit
from tally.mysql.transactions import Row
from tests.campaigns import VARIABLE
from tests.properties.pipeline import PipelineUnderTest

Partition = tuple[str, str, int]
"""Cluster, topic id and number: a partition of one generation of the topic."""

AUDITS_EVERY: Final = 1 if os.environ.get(VARIABLE) else 4

Rows = Counter[tuple[str, ...]]
"""Lines, or their bytes, by minute, and by level where that is a label."""


@dataclass(slots=True)
class Oracle:
    """Checks a pipeline after each step, and remembers what must not be undone."""

    pipeline: PipelineUnderTest
    audits_every: int = AUDITS_EVERY
    """How many checks come to one audit, which also shows what a late commit has not shown."""
    commits: int = 0
    """How many batches have been seen to be committed."""
    _checks: int = 0

    def check(self, *, with_audit: bool = False) -> None:
        """Raise unless everything holds."""
        self._checks += 1
        segments = self.pipeline.rows(_SEGMENTS, (self.pipeline.name,))
        live = [s for s in segments if s["state"] in {"live", "folded"}]
        self._check_plans(segments)
        self._check_result(live)
        self._check_contributions(live)
        self._check_dead_letters(live)
        self._check_tiles(live)
        self._check_nothing_was_erased(segments)
        self._check_batches()
        self.pipeline.memory.live = live
        if with_audit or self._checks % self.audits_every == 0:
            with self.pipeline.wire.past_the_proxy():
                verdict = audit(self.pipeline.ctx, self.pipeline.name)
            assert verdict.holds, verdict.findings
            self._check_rows(live)

    def _of_segments(self, table: str) -> list[Row]:
        return self.pipeline.rows(
            f"select c.* from `{table}` c join segment using (segment_id)"
            " join batch b using (batch_id) where b.pipeline = %s",
            (self.pipeline.name,),
        )

    def _of_generations(self, table: str) -> list[Row]:
        return self.pipeline.rows(
            f"select t.*, i.topic_id, i.cluster_id from {table} t"
            " join topic_incarnation i using (incarnation_id) where i.pipeline = %s",
            (self.pipeline.name,),
        )

    def _check_rows(self, live: list[Row]) -> None:
        """Readers see the expected lines, each once, where they are kept; the audit shows them."""
        view = self.pipeline.pipeline.rows_view
        if view is None:
            return
        is_in_files = self.pipeline.pipeline.delivery == "files"
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
            (s["topic_id"], s["partition_id"], offset, minute)
            for s in live
            for offset, minute in self.counted(s).lines
        )
        assert found == expected, f"readers see {found}, the records say {expected}"
        # Dropped files stay for an hour.
        useless = "s.state in ('open', 'sealed')" if is_in_files else "s.state <> 'live'"
        waiting = self.pipeline.rows(
            f"select s.* from `{view}__sets` s left join segment l on l.segment_id = s.segment_id"
            f" where {useless} and coalesce(l.state, 'gone') <> 'planned'"
        )
        assert not waiting, f"sets of no use: {waiting}"

    def counted(self, segment: Row) -> "Expected":
        """What a segment's count must have found."""
        number = segment["segment_id"]
        if number not in self.pipeline.memory.expected:
            self.pipeline.memory.expected[number] = self._count(segment)
        return self.pipeline.memory.expected[number]

    def _count(self, s: Row) -> "Expected":
        if s["state"] == "folded":
            return self._fold(s)
        tick, pipeline = self.pipeline.reads[s["batch_id"], s["attempt"]]
        log = self.pipeline.kafka.log(s["cluster_id"], s["topic_id"], s["partition_id"])
        found: set[int] = set()
        minutes: Rows = Counter()
        lengths: Rows = Counter()
        lines: set[tuple[int, str]] = set()
        malformed: set[int] = set()
        for offset in range(s["from_offset"], s["until_offset"]):
            record = log.at(offset, tick)
            if record is None:
                continue
            found.add(offset)
            level = record.level(str(pipeline.line_format))
            if level is None:
                malformed.add(offset)
            elif level in pipeline.levels:
                key = (record.log_time, *([level] if pipeline.labels else []))
                minutes[key] += 1
                lines.add((offset, record.log_time))
                lengths[key] += record.length if pipeline.measure == "bytes" else 0
        return Expected(found, minutes, lengths, malformed, lines)

    def _fold(self, s: Row) -> "Expected":
        """The expected counts of the segments that a folded one has replaced."""
        found = Expected(set(), Counter(), Counter(), set(), set())
        for old in self.pipeline.memory.live:
            here = [old[key] == s[key] for key in ("incarnation_id", "partition_id")]
            if all(here) and s["from_offset"] <= old["from_offset"] < s["until_offset"]:
                one = self.counted(old)
                found.records.update(one.records)
                found.minutes.update(one.minutes)
                found.lengths.update(one.lengths)
                found.malformed.update(one.malformed)
                found.lines.update(one.lines)
        return found

    def _check_result(self, live: list[Row]) -> None:
        """The result table is the expected sum, row by row, without other rows."""
        minutes: Rows = Counter()
        lengths: Rows = Counter()
        for segment in live:
            minutes.update(self.counted(segment).minutes)
            lengths.update(self.counted(segment).lengths)
        expected = {key: (lines, lengths[key]) for key, lines in minutes.items()}
        rows = self.pipeline.rows(f"select * from `{self.pipeline.name}`")
        table = {_key(row): _sums(row) for row in rows}
        assert table == expected, f"the table says {table}, the records say {expected}"

    def _check_contributions(self, live: list[Row]) -> None:
        said: dict[int, dict[tuple[str, ...], tuple[int, int]]] = defaultdict(dict)
        own = self.pipeline.pipeline.has_own_tables
        table = f"{self.pipeline.name}__segments" if own else "segment_count"
        for row in self._of_segments(table):
            said[row["segment_id"]][_key(row)] = _sums(row)
        for s in live:
            expected = self.counted(s)
            if s["state"] == "live":
                rows = {key: (n, expected.lengths[key]) for key, n in expected.minutes.items()}
                assert said[s["segment_id"]] == rows, s
            totals = (s["records"], s["matched"], s["malformed"])
            matched = sum(expected.minutes.values())
            assert totals == (len(expected.records), matched, len(expected.malformed)), s

    def _check_dead_letters(self, live: list[Row]) -> None:
        """There are dead letters of live segments and no others."""
        rows = self._of_segments("dead_letter")
        found = sorted((row["segment_id"], row["record_offset"]) for row in rows)
        expected = sorted(
            (s["segment_id"], offset)
            for s in live
            if s["state"] == "live"
            for offset in self.counted(s).malformed
        )
        folded = {s["segment_id"] for s in live if s["state"] == "folded"}
        assert [row for row in found if row[0] not in folded] == expected
        totals = Counter((row["segment_id"], row["reason"]) for row in rows)
        said = self._of_segments("dead_letter_total")
        assert {(r["segment_id"], r["reason"]): r["dead_letters"] for r in said} == totals

    def _check_plans(self, segments: list[Row]) -> None:
        for s in segments:
            planned = (s["batch_id"], s["partition_id"], s["from_offset"], s["until_offset"])
            assert self.pipeline.memory.ranges.setdefault(s["segment_id"], planned) == planned

    def _check_tiles(self, live: list[Row]) -> None:
        """No offset counts twice, is left out between start and next, or becomes uncounted."""
        tiles: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        counted: dict[Partition, set[int]] = defaultdict(set)
        for s in live:
            span = range(s["from_offset"], s["until_offset"])
            tiles[s["incarnation_id"], s["partition_id"]].append((span.start, span.stop))
            partition = (s["cluster_id"], s["topic_id"], s["partition_id"])
            assert counted[partition].isdisjoint(span), f"counted twice: {s}"
            counted[partition].update(span)
        for loss in self._of_generations("lost_range"):
            if (loss["state"], loss["cause"]) != ("accepted", "expired"):
                continue
            place = (loss["incarnation_id"], loss["partition_id"])
            tiles[place].append((loss["from_offset"], loss["until_offset"]))
            self._check_loss(loss)
        for partition, offsets in self.pipeline.memory.covered.items():
            assert offsets <= counted[partition], f"{partition}: no longer counted"
        self.pipeline.memory.covered = counted
        for row in self._of_generations("partition_offset"):
            place = (row["incarnation_id"], row["partition_id"])
            if place not in self.pipeline.memory.positions:
                self._check_start(row)
            start, now = row["start_offset"], row["next_offset"]
            began, stood = self.pipeline.memory.positions.get(place, (start, now))
            assert start == began, f"{place} began at {began}, now at {start}"
            assert now >= stood, f"{place} moved backwards from {stood} to {now}"
            self.pipeline.memory.positions[place] = (start, now)
            _check_tiling(sorted(tiles[place]), start, now)

    def _check_loss(self, loss: Row) -> None:
        """Offsets that were accepted as expired were once not readable.

        Where another topic took its place, the rest of the old one went with it.
        """
        generation = self.pipeline.kafka.generation(loss["cluster_id"], loss["topic_id"])
        if generation.was_away:
            return
        told = generation.logs[loss["partition_id"]].told
        for offset in range(loss["from_offset"], loss["until_offset"]):
            held = told.get(offset, [(0, None)])
            assert any(record is None for _, record in held), f"{offset} of {loss} was always held"

    def _check_start(self, row: Row) -> None:
        """Start offsets are right; no other check would miss lines that a wrong start skips."""
        generation = (row["cluster_id"], row["topic_id"])
        policies = self.pipeline.adopted.get(generation, {self.pipeline.pipeline.start})
        answers = self.pipeline.kafka.answers[generation]
        number = row["partition_id"]
        seen = [answer[number] for answer in answers if number in answer]
        begin = {p.earliest if policy == "earliest" else p.end for p in seen for policy in policies}
        was_added = any(number not in answer for answer in answers)
        if was_added or "earliest" in self.pipeline.adopted.get(generation, ()):
            begin.add(0)  # what it had lost before is a loss, and no start
        assert row["start_offset"] in begin, f"{row} begins at none of {begin}, as {policies}"

    def _check_nothing_was_erased(self, segments: list[Row]) -> None:
        """A replacing segment has read a record at every offset where the replaced one had."""
        by_id = {s["segment_id"]: s for s in segments}
        for s in segments:
            if s["state"] == "superseded" and by_id[s["superseded_by"]]["state"] != "folded":
                erased = self.counted(s).records - self.counted(by_id[s["superseded_by"]]).records
                assert not erased, f"{sorted(erased)} of {s} were erased"

    def _check_batches(self) -> None:
        """At most one ingest batch is open, or one of each partition; none becomes uncommitted."""
        open_ = self.pipeline.rows(
            "select b.batch_id, b.lane, concat('/', s.incarnation_id, '/', s.partition_id) as place"
            " from batch b join segment s using (batch_id)"
            " where b.pipeline = %s and b.kind = 'ingest' and b.state = 'planned'",
            (self.pipeline.name,),
        )
        places = [row["place"] for row in open_]
        assert len(places) == len(set(places)), open_
        assert len({row["batch_id"] for row in open_ if not row["lane"]}) <= 1, open_
        assert all(row["lane"] == row["place"] for row in open_ if row["lane"]), open_
        rows = self.pipeline.rows(
            "select batch_id, kind, state, replay_id from batch where pipeline = %s",
            (self.pipeline.name,),
        )
        committed = {row["batch_id"] for row in rows if row["state"] == "committed"}
        assert self.pipeline.memory.committed & {row["batch_id"] for row in rows} <= committed
        self.commits += len(committed - self.pipeline.memory.committed)
        self.pipeline.memory.committed = committed
        planned = {row["replay_id"] for row in rows if row["state"] == "planned"}
        for row in self.pipeline.rows(
            "select replay_id, state from replay where pipeline = %s", (self.pipeline.name,)
        ):
            assert (row["state"] == "open") == (row["replay_id"] in planned), row


@dataclass(frozen=True, slots=True)
class Expected:
    """What one segment's count must have found."""

    records: set[int]
    """Offsets that held a record."""
    minutes: Rows
    lengths: Rows
    """Bytes of the lines; nothing where they are not measured."""
    malformed: set[int]
    lines: set[tuple[int, str]]
    """Offset and minute of each counted line."""


def _key(row: Row) -> tuple[str, ...]:
    return (str(row["log_time"]), *([row["level"]] if "level" in row else []))


def _sums(row: Row) -> tuple[int, int]:
    return row["log_count"], row.get("log_bytes", 0)


def _check_tiling(tiles: list[tuple[int, int]], start: int, now: int) -> None:
    for (_, until), (next_from, _) in pairwise(tiles):
        assert next_from >= until, f"overlap in {tiles}"
        # Below the start, replays may have counted only parts.
        assert next_from == until or next_from <= start, f"a hole in {tiles} from {start}"
    above = [tile for tile in tiles if tile[1] > start]
    if above:
        assert above[0][0] <= start, f"a hole in {tiles} from {start}"
    assert (above[-1][1] if above else start) == now, f"{tiles} do not end at {now}"


_SEGMENTS = """
    select s.*, b.attempt, i.topic_id, i.cluster_id
    from segment s join batch b using (batch_id) join topic_incarnation i using (incarnation_id)
    where b.pipeline = %s order by s.segment_id
"""
