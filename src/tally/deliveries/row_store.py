"""Where counted lines are kept as rows: every statement on the server of the lines.

A Spark task writes the lines of its segment as one *set*, which nobody else ever writes to. A set
is ``open`` while its task writes, ``sealed`` when all of its rows are there, ``live`` when the
ledger's segment has been committed with it, and ``dropped`` when it is not, or no longer, part of
the result. A state only moves forward. Readers use a view, which shows the rows of live sets; so
they see what is replaced or what replaces it, and no line twice, whatever becomes of a task.

The server may be another one than the ledger's. The ledger alone decides which sets are live
(:mod:`tally.ledger.row_sets`); :mod:`tally.pipeline.publish` brings its decision here.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tally.deliveries.row_tables import RowTables
from tally.errors import DataLossError, FencedError, MySQLUnavailableError
from tally.model import Batch, KeptLine, RowSet, Segment
from tally.mysql.errors import CommitUnansweredError
from tally.mysql.transactions import TRANSACTION_TRIES, Row, T, Transaction

_DELETED_AT_ONCE: Final = 10_000
_COMPARED_AT_ONCE: Final = 500
_RANGE: Final = ("topic_id", "partition_id", "cluster_id", "from_offset", "until_offset")


@dataclass(frozen=True, kw_only=True, slots=True)
class WaitingSet:
    """A set that is not live yet, and may never be."""

    set_id: int
    """Its key."""
    segment_id: int
    """The segment whose lines it has."""
    attempt: int
    """The attempt of the batch that has written it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptMinute:
    """How many rows of a live set are of one minute."""

    segment_id: int
    """The segment."""
    set_id: int
    """The set."""
    cluster_id: str
    """Kafka's cluster."""
    topic_id: str
    """Kafka's id of the topic."""
    partition_id: int
    """The partition."""
    from_offset: int
    """The first offset of the segment."""
    log_time: str | None
    """The minute, ``YYYY-MM-DD HH:MM:00``; None for a set without rows."""
    rows: int
    """How many."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RowStore(RowTables):
    """The rows of one pipeline, on one server."""

    def open_set(self, batch: Batch, segment: Segment) -> int:
        """Begin the set of a segment; those of its earlier attempts are dropped.

        Raises:
            FencedError: A newer attempt has begun.
        """

        def work(tx: Transaction) -> int:
            tx.execute(
                f"update `{self.sets}` set state = 'dropped'"
                " where segment_id = %s and attempt < %s and state in ('open', 'sealed')",
                (segment.segment_id, batch.attempt),
            )
            newer = tx.row(
                f"select attempt from `{self.sets}` where segment_id = %s and attempt > %s"
                " and state in ('open', 'sealed') limit 1",
                (segment.segment_id, batch.attempt),
            )
            if newer is not None:
                raise FencedError(
                    f"batch {batch.batch_id}: attempt {newer['attempt']} keeps its lines, and "
                    f"attempt {batch.attempt} no longer does",
                    next_step=f"tally show {batch.batch_id}",
                )
            return tx.insert(
                f"insert into `{self.sets}`"
                " (segment_id, batch_id, attempt, topic, cluster_id, topic_id, partition_id,"
                " from_offset, until_offset) values (%s, %s, %s, %s, %s, %s, %s, %s, %s)",
                (
                    segment.segment_id,
                    batch.batch_id,
                    batch.attempt,
                    segment.range.partition.topic,
                    segment.cluster_id,
                    segment.topic_id,
                    segment.range.partition.partition,
                    segment.range.from_offset,
                    segment.range.until_offset,
                ),
            )

        # When the answer is lost there may be an empty set more, which is dropped one day.
        return self._until_answered(work)

    def write(self, set_id: int, lines: Sequence[KeptLine]) -> None:
        """Write some rows of an open set; the same rows again change nothing.

        Raises:
            FencedError: The set was dropped.
        """
        # Only with a parameter for each value the driver sends several rows in one statement.
        rows = [(set_id, *line) for line in lines]
        statement = (
            f"insert into `{self.kept}` (set_id, record_offset, log_time, value, key_digest)"
            " values (%s, %s, %s, %s, %s)"
            f" on duplicate key update set_id = `{self.kept}`.set_id"
        )

        def work(tx: Transaction) -> None:
            self._lock(tx, set_id, "open")
            tx.insert_many(statement, rows)

        self._until_answered(work)

    def seal(self, set_id: int, rows: int) -> RowSet:
        """Say that a set has all of its rows.

        Args:
            set_id: The set.
            rows: How many were written.

        Raises:
            FencedError: The set was dropped.
            DataLossError: It has not as many rows.
        """

        def work(tx: Transaction) -> None:
            self._lock(tx, set_id, "open", "sealed")  # sealed: the answer to the last try was lost
            found = tx.row(f"select count(*) as n from `{self.kept}` where set_id = %s", (set_id,))
            if found is None or found["n"] != rows:
                raise DataLossError(
                    f"of {rows} lines {found['n'] if found else 0} were found again in set "
                    f"{set_id} of {self.kept}",
                    next_step="run it again",
                )
            tx.execute(f"update `{self.sets}` set state = 'sealed' where set_id = %s", (set_id,))

        self._until_answered(work)
        return RowSet(set_id=set_id, rows=rows)

    def waiting(self) -> list[WaitingSet]:
        """The sets that are open or sealed."""
        with self.database.transaction(read_only=True) as tx:
            rows = tx.rows(
                f"select set_id, segment_id, attempt from `{self.sets}`"
                " where state in ('open', 'sealed') order by set_id"
            )
        return [WaitingSet(**row) for row in rows]

    def publish(self, live: Sequence[int], dropped: Sequence[int]) -> None:
        """Show sealed sets to readers and take others away, all at once.

        A set that becomes live replaces those that were live in its range. Whoever comes late with
        an older decision of the ledger changes nothing.

        Args:
            live: Sets of segments in the result.
            dropped: Sets that never will be, or were replaced before they were live.
        """

        def work(tx: Transaction) -> None:
            if dropped:
                tx.execute(
                    f"update `{self.sets}` set state = 'dropped'"
                    " where state in ('open', 'sealed') and set_id in %s",
                    (dropped,),
                )
            for one in tx.rows(
                f"select * from `{self.sets}` where state = 'sealed' and set_id in %s"
                " order by set_id for update",
                (live or [0],),
            ):
                # What it replaces lies within its range, as segments are replaced whole.
                tx.execute(
                    f"update `{self.sets}` set state = 'dropped' where topic_id = %s"
                    " and partition_id = %s and state = 'live' and cluster_id = %s"
                    " and from_offset >= %s and from_offset < %s",
                    [one[column] for column in _RANGE],
                )
                tx.execute(
                    f"update `{self.sets}` set state = 'live' where set_id = %s", (one["set_id"],)
                )

        self._until_answered(work)

    def delete_dropped(self) -> None:
        """Delete the rows of dropped sets, then the sets: a late writer finds neither."""
        with self.database.transaction(read_only=True) as tx:
            found = tx.rows(f"select set_id from `{self.sets}` where state = 'dropped'")
        for row in found:
            while self._delete_some(row["set_id"]):
                pass

    def _delete_some(self, set_id: int) -> int:
        """Delete some rows of a dropped set, or the set when it has none; how many rows."""

        def work(tx: Transaction) -> int:
            deleted = tx.execute(
                f"delete from `{self.kept}` where set_id = %s limit {_DELETED_AT_ONCE}", (set_id,)
            )
            if not deleted:
                tx.execute(
                    f"delete from `{self.sets}` where set_id = %s and state = 'dropped'", (set_id,)
                )
            return deleted

        return self._until_answered(work)

    def shown(self, sets: Mapping[int, int]) -> set[int]:
        """Which of some sets, by segment, readers see; the segments."""
        with self.database.transaction(read_only=True) as tx:
            rows = tx.rows(
                f"select segment_id, set_id from `{self.sets}`"
                " where set_id in %s and state = 'live'",
                (list(sets.values()) or [0],),
            )
        return {r["segment_id"] for r in rows if sets.get(r["segment_id"]) == r["set_id"]}

    def live_minutes(self) -> Iterator[KeptMinute]:
        """The rows of live sets by minute, in order of set and minute; some sets at a time."""
        columns = "segment_id, set_id, cluster_id, topic_id, partition_id, from_offset"
        last = 0
        while True:
            with self.database.transaction(read_only=True) as tx:
                sets = tx.rows(
                    f"select {columns} from `{self.sets}` where set_id > %s and state = 'live'"
                    f" order by set_id limit {_COMPARED_AT_ONCE}",
                    (last,),
                )
                if not sets:
                    return
                last = sets[-1]["set_id"]
                minutes = tx.rows(
                    "select set_id, cast(log_time as char) as log_time, count(*) as `rows`"
                    f" from `{self.kept}` where set_id in %s group by set_id, log_time",
                    ([one["set_id"] for one in sets],),
                )
            found: dict[int, list[Row]] = {}
            for minute in minutes:
                found.setdefault(minute["set_id"], []).append(minute)
            for one in sets:
                for minute in found.get(one["set_id"], [{"log_time": None, "rows": 0}]):
                    yield KeptMinute(**{**one, **minute})

    def packet_bytes(self) -> int:
        """The longest statement that the server takes."""
        with self.database.transaction(read_only=True) as tx:
            row = tx.row("select @@max_allowed_packet as bytes")
        return int(row["bytes"]) if row else 0

    def _lock(self, tx: Transaction, set_id: int, *states: str) -> None:
        """Lock a set against being dropped until the transaction ends.

        Raises:
            FencedError: It was dropped.
        """
        row = tx.row(f"select state from `{self.sets}` where set_id = %s for update", (set_id,))
        if row is None or row["state"] not in states:
            raise FencedError(
                f"set {set_id} of {self.kept} was dropped: a newer attempt of its batch has begun, "
                "or the batch was abandoned or committed without it",
                next_step="tally batches shows what became of the batch",
            )

    def _until_answered(self, work: Callable[[Transaction], T]) -> T:
        """Run work that may be done twice, until its COMMIT is answered."""
        for _ in range(TRANSACTION_TRIES):
            try:
                return self.database.run(work)
            except CommitUnansweredError as error:
                unanswered = error
        raise MySQLUnavailableError(
            f"the connection to the server of {self.view} broke at COMMIT {TRANSACTION_TRIES} "
            "times in a row",
            next_step="run it again once MySQL keeps its connections; it is safe",
        ) from unanswered
