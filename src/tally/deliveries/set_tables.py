"""The tables of sets of kept lines, and the view by which readers know them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final

from tally.config.names import SETS_SUFFIX
from tally.config.pipeline import Pipeline
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
    "is_erased": "is_erased boolean not null default false",
    "file_id": "file_id bigint unsigned null",
}

LISTED: Final = "state = 'live' and line_count > 0"
"""Live sets that have lines."""
_SAMPLED: Final = 20
"""Sets by whose files a folder is known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SetPlace:
    """A set, what has written it, and the range of records whose lines it has."""

    set_id: int
    """Its key."""
    segment_id: int
    """The segment."""
    batch_id: int
    """The segment's batch."""
    attempt: int
    """The attempt of the batch that has written it."""
    topic: str
    """The topic."""
    cluster_id: str
    """Kafka's cluster."""
    topic_id: str
    """Kafka's id of the topic."""
    partition_id: int
    """The partition."""
    from_offset: int
    """The first offset of the segment."""
    until_offset: int
    """The offset after its last one."""
    file_id: int | None = None
    """The number of its file, where that is not its key: it was written again to erase lines."""

    @property
    def number(self) -> int:
        """The number of its file."""
        return self.set_id if self.file_id is None else self.file_id


PLACE: Final = ", ".join(field.name for field in fields(SetPlace))
"""The columns of a :class:`SetPlace`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SetTables(ABC):
    """The tables of one pipeline's sets, on one server; what holds their lines is a subclass's."""

    database: Database
    """The server and the database."""
    pipeline: Pipeline
    """Whose lines they are: it keeps them."""
    ledger_id: str
    """The ledger that decides which lines are shown."""

    noun: ClassVar[str]
    """What the tables have, according to their comment."""
    remedy: ClassVar[str]
    """What to do when :meth:`lacks` names something."""

    @property
    def view(self) -> str:
        """The view by which readers know the live sets; safe in statements."""
        return str(self.pipeline.rows_view)

    @property
    def sets(self) -> str:
        """The table of sets."""
        return self.view + SETS_SUFFIX

    @property
    def owner(self) -> str:
        """Whose lines they are, as the tables or the folder say themselves."""
        return f"pipeline {self.pipeline.name}, ledger {self.ledger_id}"

    # --- what holds the lines

    @property
    @abstractmethod
    def version(self) -> str:
        """Of the view: with another one it is made again."""

    @abstractmethod
    def view_statement(self) -> str:
        """The statement that creates or replaces the view of live sets."""

    @abstractmethod
    def lacks(self, tx: Transaction) -> str:
        """What else is needed and is not there, as a phrase; '' when all is.

        Raises:
            ConfigError: It is another pipeline's.
        """

    @abstractmethod
    def prepare_else(self, tx: Transaction, kept: Sequence[SetPlace] | None) -> None:
        """Create what else is needed; what is there is left as it is.

        Args:
            tx: An open transaction.
            kept: The latest live sets with lines, if the ledger has segments with lines; else None.

        Raises:
            ConfigError: It is another pipeline's, or the lines so far must be elsewhere.
        """

    def tables(self) -> Mapping[str, str]:
        """The statements that create the tables beside that of the sets, by name."""
        return {}

    # --- the tables

    def check(self) -> None:
        """Raise unless tables and view are there, the owner's, and as they are to be.

        Raises:
            ConfigError: The tables have the lines of another pipeline, or of another ledger.
            SchemaError: They are not there, or the view is to be made again.
        """
        with self.database.transaction(read_only=True) as tx:
            self._check(tx)

    def _check(self, tx: Transaction) -> None:
        there = self._there(tx)
        self._check_owner(there)
        if len(there) < len(self._names) or there[self.sets][1] != self._comment:
            raise SchemaError(
                f"the view {self.view} of the lines of pipeline {self.pipeline.name} is not "
                "there, or is to be made again",
                next_step="tally migrate",
            )
        if lacking := self.lacks(tx):
            raise SchemaError(
                f"pipeline {self.pipeline.name} keeps its lines in {self.view}, and {lacking}",
                next_step=self.remedy,
            )

    def is_moved(self) -> bool:
        """Whether the lines so far are in another place than they are to be."""
        return False

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
                tables = " and ".join([*self.tables(), self.sets])
                server = self.database.settings
                raise ConfigError(
                    f"pipeline {self.pipeline.name} has kept lines, and there is no {self.sets} "
                    f"in database {server.database} of {server.host}",
                    next_step=f"set [{server.section}] back to the server that has them, or copy "
                    f"{tables} there",
                )
            if self.sets in there:
                self._add_columns(tx)
            # Before the rest, as it may refuse; what was created by then cannot be taken back.
            latest = f"{LISTED} order by segment_id desc limit {_SAMPLED}"
            self.prepare_else(tx, self._places(tx, latest) if has_lines else None)
            added = ", ".join(_ADDED.values())
            tx.execute(_SETS.format(sets=self.sets, added=added, comment=comment))
            for statement in self.tables().values():
                tx.execute(statement)
            tx.execute(self.view_statement())
            # Last, as it shows that all else is there.
            tx.execute(f"alter table `{self.sets}` comment = '{comment}'")

    def _places(self, tx: Transaction, which: str, values: Sequence[Any] = ()) -> list[SetPlace]:
        """Some sets, by the condition after ``where`` in the statement."""
        rows = tx.rows(f"select {PLACE} from `{self.sets}` where {which}", values)
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
        return f"{self.noun} of {self.owner}"

    @property
    def _comment(self) -> str:
        """Of the table of sets: whose lines they are, and how the view was made."""
        return f"{self._owned}, {self.version}"

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
        return self.view, self.sets, *self.tables()

    def _check_owner(self, there: Mapping[str, tuple[str, str]]) -> None:
        for name, (kind, comment) in there.items():
            wrong = ""
            if (kind == "VIEW") != (name == self.view):
                wrong = "is something else"
            elif name == self.sets and not comment.startswith(f"{self._owned},"):
                wrong = f"says that it has {comment or 'something else'}"
            if wrong:
                raise ConfigError(
                    f"pipelines.{self.pipeline.name}.rows_table = {self.view!r}: {name} exists "
                    f"and {wrong}; this is ledger {self.ledger_id}",
                    next_step="name a view that does not exist yet; tally migrate creates it",
                )
