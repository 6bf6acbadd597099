"""The oracle: the expected result from the test's own records, and the invariants.

It takes two things from the ledger: which ranges are live, by which attempt of which batch, and
which losses were accepted. The records in them come from the model's copy of all that was ever
written, as that attempt read them. Accepted losses must once have been gone from Kafka, and start
offsets must be offsets that Kafka has answered.
"""

import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from tally.config.pipeline import Pipeline
from tally.mysql.transactions import Row
from tally.pipeline.audit import audit_ledger
from tests.campaigns import VARIABLE
from tests.properties.kafka_model import Record
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
    _ranges: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    """The planned range of each segment, which must not change."""
    _positions: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    """By generation and partition: start and committed offset."""
    _covered: dict[Partition, set[int]] = field(default_factory=lambda: defaultdict(set))
    """Offsets that were ever counted."""
    _committed: set[int] = field(default_factory=set)
    _expected: dict[int, "Expected"] = field(default_factory=dict)
    _live: dict[int, Row] = field(default_factory=dict)
    """Expected counts by segment, of the last check; a folded segment replaces some of them."""
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
        self._live = {s["segment_id"]: s for s in live}
        if with_audit or self._checks % self.audits_every == 0:
            with self.pipeline.wire.past_the_proxy():
                verdict = audit_ledger(self.pipeline.ctx, self.pipeline.name)
            assert verdict.holds, verdict.violations
            self._check_rows(live)

    def _check_rows(self, live: list[Row]) -> None:
        """Readers see the expected lines, each once, where they are kept; the audit shows them."""
        view = self.pipeline.pipeline.rows_view
        if view is None:
            return
        is_in_files = self.pipeline.pipeline.delivery == "files"
        columns = ("topic_id", "partition_id", "record_offset", "log_time")
        if is_in_files:
            files = [row["file"] for row in self.pipeline.rows(f"select file from `{view}`")]
            rows = [row for file in files for row in _rows_of(file, columns)]
            _check_list(self.pipeline.pipeline, files)
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
        if segment["segment_id"] not in self._expected:
            self._expected[segment["segment_id"]] = self._count(segment)
        return self._expected[segment["segment_id"]]

    def _count(self, s: Row) -> "Expected":
        if s["state"] == "folded":
            return self._fold(s)
        read = self.pipeline.reads[s["batch_id"], s["attempt"]]
        log = self.pipeline.kafka.log(s["cluster_id"], s["topic_id"], s["partition_id"])
        found: dict[int, Record] = {}
        minutes: Rows = Counter()
        lengths: Rows = Counter()
        lines = set()
        malformed = []
        for offset in range(s["from_offset"], s["until_offset"]):
            record = log.at(offset, read.tick)
            if record is None:
                continue
            found[offset] = record
            level = record.level(read.line_format)
            if level is None:
                malformed.append(offset)
            elif level in read.levels:
                key = (record.log_time, *([level] if read.by_level else []))
                minutes[key] += 1
                lines.add((offset, record.log_time))
                lengths[key] += record.length if read.has_bytes else 0
        return Expected(frozenset(found), minutes, lengths, tuple(malformed), frozenset(lines))

    def _fold(self, s: Row) -> "Expected":
        """The expected counts of the segments that a folded one has replaced."""
        found = Expected()
        for old in self._live.values():
            here = [old[key] == s[key] for key in ("incarnation_id", "partition_id")]
            if all(here) and s["from_offset"] <= old["from_offset"] < s["until_offset"]:
                found += self.counted(old)
        return found

    def _check_result(self, live: list[Row]) -> None:
        """The result table is the expected sum, row by row, without other rows."""
        expected = Expected()
        for segment in live:
            expected += self.counted(segment)
        rows = self.pipeline.rows(f"select * from `{self.pipeline.name}`")
        table = {_key(row): _sums(row) for row in rows}
        assert table == expected.rows, f"the table says {table}, the records say {expected.rows}"

    def _check_contributions(self, live: list[Row]) -> None:
        """Each segment's totals and contributions are the expected ones."""
        said: dict[int, dict[tuple[str, ...], tuple[int, int]]] = defaultdict(dict)
        own = self.pipeline.pipeline.has_own_tables
        table = f"{self.pipeline.name}__segments" if own else "segment_count"
        for row in self.pipeline.rows(_CONTRIBUTIONS.format(table), (self.pipeline.name,)):
            said[row["segment_id"]][_key(row)] = _sums(row)
        for s in live:
            expected = self.counted(s)
            if s["state"] == "live":
                assert said[s["segment_id"]] == expected.rows, s
            totals = (s["records"], s["matched"], s["malformed"])
            matched = sum(expected.minutes.values())
            assert totals == (len(expected.records), matched, len(expected.malformed)), s

    def _check_dead_letters(self, live: list[Row]) -> None:
        """There are dead letters of live segments and no others."""
        rows = self.pipeline.rows(_DEAD_LETTERS, (self.pipeline.name,))
        found = sorted((row["segment_id"], row["record_offset"]) for row in rows)
        expected = sorted(
            (s["segment_id"], offset)
            for s in live
            if s["state"] == "live"
            for offset in self.counted(s).malformed
        )
        folded = {s["segment_id"] for s in live if s["state"] == "folded"}
        assert [row for row in found if row[0] not in folded] == expected
        totals: Counter[tuple[int, str]] = Counter()
        for row in rows:
            totals[row["segment_id"], row["reason"]] += 1
        said = self.pipeline.rows(_DEAD_LETTER_TOTALS, (self.pipeline.name,))
        assert {(r["segment_id"], r["reason"]): r["dead_letters"] for r in said} == totals

    def _check_plans(self, segments: list[Row]) -> None:
        """Planned ranges do not change."""
        for s in segments:
            planned = (s["batch_id"], s["partition_id"], s["from_offset"], s["until_offset"])
            assert self._ranges.setdefault(s["segment_id"], planned) == planned

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
        for loss in self.pipeline.rows(_LOSSES, (self.pipeline.name,)):
            place = (loss["incarnation_id"], loss["partition_id"])
            tiles[place].append((loss["from_offset"], loss["until_offset"]))
            self._check_loss(loss)
        for partition, offsets in self._covered.items():
            assert offsets <= counted[partition], f"{partition}: no longer counted"
        self._covered = counted
        for row in self.pipeline.rows(_POSITIONS, (self.pipeline.name,)):
            place = (row["incarnation_id"], row["partition_id"])
            if place not in self._positions:
                self._check_start(row)
            self._check_position(place, row["start_offset"], row["next_offset"])
            _check_tiling(sorted(tiles[place]), row["start_offset"], row["next_offset"])

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
        if any(number not in answer for answer in answers):
            policies = policies | {
                "earliest"
            }  # the partition may have been added since the first plan
        begin = {
            answer[number].earliest if policy == "earliest" else answer[number].end
            for answer in answers
            if number in answer
            for policy in policies
        }
        assert row["start_offset"] in begin, f"{row} begins at none of {begin}, as {policies}"

    def _check_position(self, place: tuple[int, int], start: int, now: int) -> None:
        began, stood = self._positions.get(place, (start, now))
        assert start == began, f"{place} began at {began}, now at {start}"
        assert now >= stood, f"{place} moved backwards from {stood} to {now}"
        self._positions[place] = (start, now)

    def _check_nothing_was_erased(self, segments: list[Row]) -> None:
        """A replacing segment has read a record at every offset where the replaced one had."""
        by_id = {s["segment_id"]: s for s in segments}
        for s in segments:
            if s["state"] == "superseded" and by_id[s["superseded_by"]]["state"] != "folded":
                erased = self.counted(s).records - self.counted(by_id[s["superseded_by"]]).records
                assert not erased, f"{sorted(erased)} of {s} were erased"

    def _check_open_batches(self) -> None:
        """At most one ingest batch is open, or one of each partition."""
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

    def _check_batches(self) -> None:
        rows = self.pipeline.rows(
            "select batch_id, kind, state, replay_id from batch where pipeline = %s",
            (self.pipeline.name,),
        )
        self._check_open_batches()
        committed = {row["batch_id"] for row in rows if row["state"] == "committed"}
        assert self._committed & {row["batch_id"] for row in rows} <= committed
        self.commits += len(committed - self._committed)
        self._committed = committed
        planned = {row["replay_id"] for row in rows if row["state"] == "planned"}
        for row in self.pipeline.rows(
            "select replay_id, state from replay where pipeline = %s", (self.pipeline.name,)
        ):
            assert (row["state"] == "open") == (row["replay_id"] in planned), row


@dataclass(frozen=True, slots=True)
class Expected:
    """What one segment's count must have found."""

    records: frozenset[int] = frozenset()
    """Offsets that held a record."""
    minutes: Rows = field(default_factory=Counter)
    lengths: Rows = field(default_factory=Counter)
    """Bytes of the lines; nothing where they are not measured."""
    malformed: tuple[int, ...] = ()
    lines: frozenset[tuple[int, str]] = frozenset()
    """Offset and minute of each counted line."""

    def __add__(self, other: "Expected") -> "Expected":
        return Expected(
            self.records | other.records,
            self.minutes + other.minutes,
            self.lengths + other.lengths,
            self.malformed + other.malformed,
            self.lines | other.lines,
        )

    @property
    def rows(self) -> dict[tuple[str, ...], tuple[int, int]]:
        """Lines and bytes of each row."""
        return {key: (lines, self.lengths[key]) for key, lines in self.minutes.items()}


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

_CONTRIBUTIONS = """
    select c.*
    from {} c join segment s using (segment_id) join batch b using (batch_id)
    where b.pipeline = %s
"""

_DEAD_LETTERS = """
    select d.segment_id, d.record_offset, d.reason
    from dead_letter d join segment s using (segment_id) join batch b using (batch_id)
    where b.pipeline = %s
"""

_DEAD_LETTER_TOTALS = """
    select t.* from dead_letter_total t join segment s using (segment_id)
    join batch b using (batch_id) where b.pipeline = %s
"""

_LOSSES = """
    select l.incarnation_id, l.partition_id, l.from_offset, l.until_offset,
        i.topic_id, i.cluster_id
    from lost_range l join topic_incarnation i using (incarnation_id)
    where i.pipeline = %s and l.state = 'accepted' and l.cause = 'expired'
"""

_POSITIONS = """
    select o.incarnation_id, o.partition_id, o.start_offset, o.next_offset,
        i.topic_id, i.cluster_id
    from partition_offset o join topic_incarnation i using (incarnation_id)
    where i.pipeline = %s
"""


def _rows_of(file: str, columns: Sequence[str]) -> list[Row]:
    """Some columns of a file."""
    rows: list[Row] = pq.read_table(file.removeprefix("file://"), columns=list(columns)).to_pylist()
    return rows


def _check_list(pipeline: Pipeline, files: Sequence[str]) -> None:
    """The list beside the files has those of the view."""
    listed = Path((pipeline.files_url or "").removeprefix("file://"), "_live/files.txt")
    text = listed.read_text() if listed.exists() else ""
    assert sorted(text.splitlines()) == sorted(files), f"the list has {text}, the view {files}"
