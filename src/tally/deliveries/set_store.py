"""The life of a set of kept lines: every statement about it on the server of the lines.

A Spark task writes the lines of its segment as one *set*, which no other task ever writes to. A set
is ``open`` while its task writes, ``sealed`` when all of its lines are there, ``live`` when the
ledger's segment has been committed with it, and ``dropped`` when it is not, or no longer, part of
the result. A state only moves forward. Readers use a view, which knows the live sets; so they see
what is replaced or what replaces it, and no line twice, whatever becomes of a task.

The server may be another one than the ledger's. The ledger alone decides which sets are live
(:mod:`tally.ledger.line_sets`); :mod:`tally.deliveries.kept_lines` brings its decision here. The
lines of a set are rows of a table, or files; a new kind is another subclass.
"""

import secrets
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import ClassVar, Final

from tally.aggregates.counts import LineSet
from tally.deliveries.contract import LineWriter
from tally.deliveries.set_erasure import ErasableSets
from tally.deliveries.set_tables import LISTED, PLACE, SetPlace
from tally.errors import ConfigError, DataLossError, FencedError, SchemaError
from tally.model import Batch, Segment
from tally.mysql.transactions import T, Transaction
from tally.views import view_of

_COMPARED_AT_ONCE: Final = 500
_DROPPED_AT_ONCE: Final = 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptSet:
    """The state of a set as it was found."""

    place: SetPlace
    """The set."""
    minutes: Mapping[str, int]
    """How many lines of each minute, ``YYYY-MM-DD HH:MM:00``."""
    trouble: str = ""
    """Why its lines cannot be read; '' when they can."""

    @property
    def rows(self) -> int:
        """How many lines it has."""
        return sum(self.minutes.values())


@dataclass(frozen=True, kw_only=True, slots=True)
class SetStore(ErasableSets):
    """The sets of one pipeline, on one server."""

    kept_s: ClassVar[int] = 0
    """Seconds for which the lines of a dropped set are kept, for those who still read them."""

    # --- what holds the lines

    @abstractmethod
    def writer(self, place: SetPlace) -> LineWriter:
        """What writes the lines of an open set; the same lines again change nothing."""

    @abstractmethod
    def count(self, tx: Transaction, place: SetPlace) -> int:
        """How many lines a set has."""

    @abstractmethod
    def find(self, tx: Transaction, places: Sequence[SetPlace]) -> Iterable[KeptSet]:
        """What there is of some sets, in their order."""

    @abstractmethod
    def delete(self, place: SetPlace) -> None:
        """Delete the lines of a dropped set; nothing happens when there are none."""

    def inform_readers(self) -> None:
        """Write which sets are live for readers that do not ask the database, if there are any."""

    def delete_orphans(self) -> int:
        """Delete lines that are of no set, as a killed writer may leave; of how many sets."""
        return 0

    # --- sets

    def open_set(self, batch: Batch, segment: Segment) -> SetPlace:
        """Begin the set of a segment; those of its earlier attempts are dropped.

        Raises:
            FencedError: A newer attempt has begun.
        """

        def work(tx: Transaction) -> SetPlace:
            tx.execute(
                f"update `{self.sets}` set state = 'dropped'"
                " where segment_id = %s and attempt < %s and state in ('open', 'sealed')",
                (segment.segment_id, batch.attempt),
            )
            newer = tx.scalar(
                f"select attempt from `{self.sets}` where segment_id = %s and attempt > %s"
                " and state in ('open', 'sealed') limit 1",
                (segment.segment_id, batch.attempt),
            )
            if newer is not None:
                raise FencedError(
                    f"batch {batch.batch_id}: attempt {newer} keeps its lines, and "
                    f"attempt {batch.attempt} no longer does",
                    next_step=f"tally show {batch.batch_id}",
                )
            partition = segment.range.partition
            place = view_of(
                SetPlace,
                batch,
                segment,
                segment.range,
                partition,
                # Random: numbers in order are given again by a server that was restored, and
                # an earlier writer of such a set would write to the new one.
                set_id=secrets.randbits(62),
                file_id=None,
                partition_id=partition.partition,
            )
            tx.insert_row(f"`{self.sets}`", **asdict(place))
            return place

        # When the answer is lost there may be an empty set more, which is dropped one day.
        return self._until_answered(work)

    def run_locked(self, place: SetPlace, work: Callable[[Transaction], T]) -> T:
        """Run work that may be done twice while a set is open, and cannot be dropped.

        Raises:
            FencedError: It was dropped.
        """

        def locked(tx: Transaction) -> T:
            self._lock(tx, place.set_id, "open")
            return work(tx)

        return self._until_answered(locked)

    def seal(self, place: SetPlace, lines: int) -> LineSet:
        """Say that a set has all of its lines.

        Args:
            place: The set.
            lines: How many were written.

        Raises:
            FencedError: The set was dropped.
            DataLossError: It has not as many lines.
        """

        def work(tx: Transaction) -> None:
            # Sealed: the answer to the last try was lost.
            self._lock(tx, place.set_id, "open", "sealed")
            try:
                self._check(tx)
            except (SchemaError, ConfigError) as error:
                raise FencedError(
                    f"the place of the lines in {self.view} was changed while they were written",
                    next_step="run it again, by the new configuration",
                ) from error
            found = self.count(tx, place)
            if found != lines:
                raise DataLossError(
                    f"of {lines} lines {found} were found again in set {place.set_id} of "
                    f"{self.view}",
                    next_step="run it again",
                )
            tx.execute(
                f"update `{self.sets}` set state = 'sealed', line_count = %s where set_id = %s",
                (lines, place.set_id),
            )

        self._until_answered(work)
        return LineSet(set_id=place.set_id, lines=lines)

    def check_sealed(self, sealed: LineSet) -> None:
        """Raise unless a set is still sealed: a replica that lags may have taken over since.

        Raises:
            FencedError: It is not, or has not as many lines.
        """
        with self.database.transaction(read_only=True) as tx:
            found = tx.row(
                f"select state, line_count from `{self.sets}` where set_id = %s", (sealed.set_id,)
            )
        if found != {"state": "sealed", "line_count": sealed.lines}:
            raise FencedError(
                f"set {sealed.set_id} of {self.view} is no longer there with its {sealed.lines} "
                "lines: it was dropped, or its server was restored to an older state",
                next_step="run it again: that keeps its lines anew",
            )

    def waiting(self) -> list[SetPlace]:
        """The sets that are open or sealed: not live yet, and perhaps never."""
        with self.database.transaction(read_only=True) as tx:
            return self._places(tx, "state in ('open', 'sealed') order by set_id")

    def publish(self, live: Sequence[int], dropped: Sequence[int]) -> None:
        """Show sealed sets to readers and take others away, all at once.

        A set that becomes live replaces those that were live in its range. A caller that is late
        with an older decision of the ledger changes nothing.

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
            sealed = "state = 'sealed' and set_id in %s order by set_id for update"
            for place in self._places(tx, sealed, (live or [0],)):
                self._drop_live(tx, place)
                tx.execute(
                    f"update `{self.sets}` set state = 'live' where set_id = %s", (place.set_id,)
                )

        self._until_answered(work)

    def _drop_live(self, tx: Transaction, by: SetPlace) -> None:
        """Drop the live sets of a range, which another one replaces: readers see no line twice.

        They lie within it, as segments are replaced whole. But one that a restored ledger does not
        know may reach into it from below; of those that begin there only the last one can.
        """
        place = (by.topic_id, by.partition_id, by.cluster_id)
        live = "topic_id = %s and partition_id = %s and cluster_id = %s and state = 'live'"
        below = tx.row(
            f"select set_id, until_offset from `{self.sets}` where {live} and from_offset < %s"
            " order by from_offset desc limit 1",
            (*place, by.from_offset),
        )
        reaching = below["set_id"] if below and below["until_offset"] > by.from_offset else None
        tx.execute(
            f"update `{self.sets}` set state = 'dropped' where {live}"
            " and (from_offset >= %s and from_offset < %s or set_id = %s)",
            (*place, by.from_offset, by.until_offset, reaching),
        )

    def delete_dropped(self) -> None:
        """Delete the lines of dropped sets, then the sets: a late writer finds neither."""
        old = (
            "state = 'dropped' and changed_at <= current_timestamp(6) - interval %s second"
            f" limit {_DROPPED_AT_ONCE}"
        )
        while True:
            with self.database.transaction(read_only=True) as tx:
                found = self._places(tx, old, (self.kept_s,))
            for place in found:
                self.delete(place)
                self._until_answered(partial(self._forget, place))
            if len(found) < _DROPPED_AT_ONCE:
                return

    def _forget(self, place: SetPlace, tx: Transaction) -> None:
        tx.execute(
            f"delete from `{self.sets}` where set_id = %s and state = 'dropped'", (place.set_id,)
        )

    def live(self) -> Iterator[SetPlace]:
        """Live sets that have lines, in order of key."""
        with self.database.transaction(isolation="repeatable read", read_only=True) as tx:
            statement = f"select {PLACE} from `{self.sets}` where {LISTED} order by set_id"
            for row in tx.stream(statement):
                yield SetPlace(**row)

    def shown(self, sets: Mapping[int, int]) -> set[int]:
        """Which of some sets, by segment, readers see; the segments."""
        with self.database.transaction(read_only=True) as tx:
            found = tx.pairs(
                f"select segment_id, set_id from `{self.sets}`"
                " where set_id in %s and state = 'live'",
                (list(sets.values()) or [0],),
            )
        return {
            segment_id for segment_id, set_id in found.items() if sets.get(segment_id) == set_id
        }

    def live_sets(self) -> Iterator[KeptSet]:
        """What there is of the live sets, in order of key; some sets at a time."""
        last = 0
        next_ones = f"set_id > %s and state = 'live' order by set_id limit {_COMPARED_AT_ONCE}"
        while True:
            with self.database.transaction(read_only=True) as tx:
                places = self._places(tx, next_ones, (last,))
                if not places:
                    return
                last = places[-1].set_id
                found = self.find(tx, places)
            yield from found
