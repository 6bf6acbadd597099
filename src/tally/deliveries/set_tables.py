"""The tables of sets of kept lines, and the view by which readers know them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from tally.config.names import SETS_SUFFIX
from tally.deliveries.content import PLACE, Content, Owner, SetPlace
from tally.errors import ConfigError, FencedError, SchemaError
from tally.mysql.transactions import Database, T, Transaction

_SETS: Final = """
    create table if not exists `{sets}` (
        set_id bigint unsigned not null auto_increment,
        segment_id bigint unsigned not null,
        batch_id bigint unsigned not null,
        attempt int unsigned not null,
        topic varchar(249) character set ascii collate ascii_bin not null,
        cluster_id varchar(64) character set ascii collate ascii_bin not null,
        topic_id varchar(36) character set ascii collate ascii_bin not null,
        partition_id int unsigned not null,
        from_offset bigint not null,
        until_offset bigint not null,
        state enum('open', 'sealed', 'live', 'dropped') not null default 'open',
        {added},
        primary key (set_id),
        key sets_of_segment (segment_id, attempt),
        key sets_of_partition (topic_id, partition_id, state, from_offset),
        key sets_by_state (state)
    ) engine = InnoDB default character set utf8mb4 comment = '{comment}'
"""
# Tables that were made before these columns get them.
_ADDED: Final = {
    "line_count": "line_count bigint unsigned null",
    "changed_at": "changed_at datetime(6) not null default current_timestamp(6)"
    " on update current_timestamp(6)",
}

_SAMPLED: Final = 20
"""Sets by whose files a folder is known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SetTables:
    """The tables of one pipeline's lines, on one server."""

    database: Database
    """The server and the database."""
    owner: Owner
    """Whose lines they have."""
    content: Content
    """What holds the lines."""

    @property
    def view(self) -> str:
        """The view that readers use."""
        return self.content.view

    @property
    def sets(self) -> str:
        """The table of sets."""
        return self.view + SETS_SUFFIX

    def is_prepared(self) -> bool:
        """Whether tables and view are there, the owner's, and as they are to be.

        Raises:
            ConfigError: The folder of the lines is another pipeline's.
        """
        with self.database.transaction(read_only=True) as tx:
            return self._is_prepared(tx)

    def check(self) -> None:
        """Raise unless tables and view are there, the owner's, and as they are to be.

        Raises:
            ConfigError: The tables have the lines of another pipeline, or of another ledger.
            SchemaError: They are not there, or the view is to be made again.
        """
        with self.database.transaction(read_only=True) as tx:
            there = self._there(tx)
            self._check_owner(there)
            if not self._is_whole(there):
                raise SchemaError(
                    f"the view {self.view} of the lines of pipeline {self.owner.pipeline} is not "
                    "there, or is to be made again",
                    next_step="tally migrate",
                )
            if lacking := self.content.lacks(tx):
                raise SchemaError(
                    f"pipeline {self.owner.pipeline} keeps its lines in {self.view}, and {lacking}",
                    next_step=self.content.remedy,
                )

    def is_moved(self) -> bool:
        """Whether the lines so far are in another place than they are to be."""
        with self.database.transaction(read_only=True) as tx:
            there = self._there(tx)
        return self.sets in there and self.content.is_moved(there[self.sets][1])

    def prepare(self, *, has_lines: bool) -> None:
        """Create tables and view, or change the view.

        Args:
            has_lines: Whether the ledger has segments whose lines must be in these tables.

        Raises:
            ConfigError: The tables have the lines of another pipeline, or of another ledger; or
                they are not there, and the lines so far must be elsewhere.
        """
        comment = self._comment
        with self.database.transaction() as tx:
            there = self._there(tx)
            self._check_owner(there)
            if has_lines and self.sets not in there:
                tables = " and ".join([*self.content.tables(), self.sets])
                raise ConfigError(
                    f"pipeline {self.owner.pipeline} has kept lines, and there is no {self.sets} "
                    f"in database {self.database.settings.database} of "
                    f"{self.database.settings.host}",
                    next_step=f"set [{self.database.settings.section}] back to the server that has "
                    f"them, or copy {tables} there",
                )
            if self.sets in there:
                self._add_columns(tx)
            # Before the rest, as it may refuse; what was created by then cannot be taken back.
            self.content.prepare(tx, self.sets, self._latest(tx) if has_lines else None)
            added = ", ".join(_ADDED.values())
            tx.execute(_SETS.format(sets=self.sets, added=added, comment=comment))
            for statement in self.content.tables().values():
                tx.execute(statement)
            tx.execute(self.content.view_statement(self.sets))
            # Last, as it says that all else is there.
            tx.execute(f"alter table `{self.sets}` comment = '{comment}'")

    def _latest(self, tx: Transaction) -> list[SetPlace]:
        """The latest live sets that have lines."""
        rows = tx.rows(
            f"select {PLACE} from `{self.sets}` where state = 'live' and line_count > 0"
            f" order by segment_id desc limit {_SAMPLED}"
        )
        return [SetPlace(**row) for row in rows]

    def _add_columns(self, tx: Transaction) -> None:
        have = tx.scalars(
            "select column_name from information_schema.columns"
            " where table_schema = database() and table_name = %s",
            (self.sets,),
        )
        for name, column in _ADDED.items():
            if name not in have:
                tx.execute(f"alter table `{self.sets}` add column {column}")

    def _packet_bytes(self) -> int:
        """The longest statement that the server takes."""
        with self.database.transaction(read_only=True) as tx:
            return int(tx.scalar("select @@max_allowed_packet"))

    def _lock(self, tx: Transaction, set_id: int, *states: str) -> None:
        """Lock a set against being dropped until the transaction ends.

        Raises:
            FencedError: It was dropped.
        """
        locked = f"select state from `{self.sets}` where set_id = %s for update"
        if tx.scalar(locked, (set_id,)) not in states:
            raise FencedError(
                f"set {set_id} of {self.view} was dropped: a newer attempt of its batch has begun, "
                "or the batch was abandoned or committed without it",
                next_step="tally batches shows what became of the batch",
            )

    def _until_answered(self, work: Callable[[Transaction], T]) -> T:
        """Run work that may be done twice, until its COMMIT is answered."""
        return self.database.run_answered(work, what=f"what is written beside {self.view}")

    @property
    def _owned(self) -> str:
        return f"{self.content.noun} of {self.owner.name}"

    @property
    def _comment(self) -> str:
        """Of the table of sets: whose lines they are, and how the view was made."""
        return f"{self._owned}, {self.content.version}"

    def _is_prepared(self, tx: Transaction) -> bool:
        return self._is_whole(self._there(tx)) and not self.content.lacks(tx)

    def _is_whole(self, there: Mapping[str, tuple[str, str]]) -> bool:
        return len(there) == len(self._names) and there[self.sets][1] == self._comment

    def _there(self, tx: Transaction) -> dict[str, tuple[str, str]]:
        """Kind and comment of the tables and the view that are there, by name."""
        rows = tx.rows(
            "select table_name as `name`, table_type as kind, table_comment as comment"
            " from information_schema.tables where table_schema = database() and table_name in %s",
            (self._names,),
        )
        return {row["name"]: (row["kind"], row["comment"]) for row in rows}

    @property
    def _names(self) -> tuple[str, ...]:
        return self.view, self.sets, *self.content.tables()

    def _check_owner(self, there: Mapping[str, tuple[str, str]]) -> None:
        for name, (kind, comment) in there.items():
            wrong = ""
            if (kind == "VIEW") != (name == self.view):
                wrong = "is something else"
            elif name == self.sets and not comment.startswith(f"{self._owned},"):
                wrong = f"says that it has {comment or 'something else'}"
            if wrong:
                raise ConfigError(
                    f"pipelines.{self.owner.pipeline}.rows_table = {self.view!r}: {name} exists "
                    f"and {wrong}; this is ledger {self.owner.ledger_id}",
                    next_step="name a view that does not exist yet; tally migrate creates it",
                )
