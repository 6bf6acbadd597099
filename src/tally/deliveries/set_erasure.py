"""Taking the text of kept lines, whose times and offsets stay: the audit compares nothing else."""

import secrets
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Final

from tally.deliveries.set_tables import SetPlace, SetTables
from tally.errors import TallyError
from tally.model import OffsetRange
from tally.mysql.transactions import Transaction

_AT_ONCE: Final = 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class ErasableSets(SetTables):
    """Sets of lines whose text may be erased."""

    @abstractmethod
    def erase(self, place: SetPlace, first: int, until: int, *, dry_run: bool = False) -> int:
        """Take the text of a set's lines at some offsets.

        Args:
            place: The set, which is open no longer.
            first: The first offset.
            until: The offset after the last one.
            dry_run: Whether nothing is changed.

        Returns:
            How many had one.

        Raises:
            TallyError: Its lines cannot be read, or a server did not answer.
        """

    def erase_range(self, erased: OffsetRange, *, dry_run: bool = False) -> int:
        """Take the text of all lines of a range, of any generation of its topic; how many had one.

        Open sets are left out: whoever shows them asks what was erased.
        """
        first, until = erased.from_offset, erased.until_offset
        found = self._pages(
            "topic = %s and partition_id = %s and state <> 'open'"
            " and from_offset < %s and until_offset > %s",
            (erased.partition.topic, erased.partition.partition, until, first),
        )
        return sum(self.erase(place, first, until, dry_run=dry_run) for place in found)

    def erase_old(self, days: int) -> None:
        """Take the text of all lines that have been shown for so long.

        Raises:
            TallyError: The first error of a set, after all others were tried.
        """
        old = (
            "state = 'live' and not is_erased"
            " and changed_at <= current_timestamp(6) - interval %s day"
        )
        failed: list[TallyError] = []
        for place in self._pages(old, (days,)):
            try:
                self.erase(place, place.from_offset, place.until_offset)
                self._until_answered(partial(self._mark_erased, place))
            except TallyError as error:
                failed.append(error)
        if failed:
            raise failed[0]

    # --- files, which are written again

    def new_spare(self, place: SetPlace) -> SetPlace:
        """A dropped set, for the file without the text that is to replace a set's.

        Whichever file the spare set has when this process dies is deleted with it.
        """
        spare = replace(place, set_id=secrets.randbits(62), file_id=None)

        def work(tx: Transaction) -> None:
            tx.execute(f"delete from `{self.sets}` where set_id = %s", (spare.set_id,))
            tx.insert_row(f"`{self.sets}`", **asdict(spare), state="dropped")

        self._until_answered(work)
        return spare

    def swap_files(self, place: SetPlace, spare: SetPlace) -> bool:
        """Give a set the file of the spare one, which is deleted with the file that it has then.

        Returns:
            Whether they were swapped; False when the set is gone or has another file meanwhile.
        """
        files = f"select set_id, coalesce(file_id, set_id) from `{self.sets}` where set_id in %s"
        # So old that its file is deleted at once.
        give = (
            f"update `{self.sets}` set file_id = %s,"
            " changed_at = if(state = 'dropped', '2000-01-01', changed_at) where set_id = %s"
        )

        def work(tx: Transaction) -> bool:
            found = tx.pairs(f"{files} for update", ([place.set_id, spare.set_id],))
            if found.get(place.set_id) == spare.set_id:
                return True  # the answer to the last try was lost
            if found != {place.set_id: place.number, spare.set_id: spare.set_id}:
                tx.execute(give, (spare.set_id, spare.set_id))
                return False
            tx.execute(give, (spare.set_id, place.set_id))
            tx.execute(give, (place.number, spare.set_id))
            return True

        return self._until_answered(work)

    def as_it_is(self, place: SetPlace) -> SetPlace | None:
        """A set with the file that it has now; None when it is gone, or has no lines."""
        with self.database.transaction(read_only=True) as tx:
            found = self._places(tx, "set_id = %s and not line_count <=> 0", (place.set_id,))
        return found[0] if found else None

    def known_files(self, numbers: Sequence[int]) -> set[int]:
        """Which of some numbers are those of a set's file, in whatever state."""
        # In this order: a spare set goes only after the set that has its file.
        known = self.known(numbers)
        with self.database.transaction(read_only=True) as tx:
            replaced = tx.pairs(
                f"select set_id, file_id from `{self.sets}` where file_id is not null"
            )
        return known - replaced.keys() | set(replaced.values())

    def known(self, set_ids: Sequence[int]) -> set[int]:
        """Which of some sets are there, in whatever state."""
        found: set[int] = set()
        statement = f"select set_id from `{self.sets}` where set_id in %s"
        for at in range(0, len(set_ids), _AT_ONCE):
            with self.database.transaction(read_only=True) as tx:
                found.update(tx.scalars(statement, (set_ids[at : at + _AT_ONCE],)))
        return found

    # --- sets

    def _pages(self, which: str, values: tuple[object, ...]) -> Iterator[SetPlace]:
        """Sets by a condition, in order of key, some at a time."""
        last, page = 0, f"{which} and set_id > %s order by set_id limit {_AT_ONCE}"
        while True:
            with self.database.transaction(read_only=True) as tx:
                found = self._places(tx, page, (*values, last))
            yield from found
            if len(found) < _AT_ONCE:
                return
            last = found[-1].set_id

    def _mark_erased(self, place: SetPlace, tx: Transaction) -> None:
        tx.execute(f"update `{self.sets}` set is_erased = true where set_id = %s", (place.set_id,))
