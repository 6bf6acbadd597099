"""The tables of kept lines, and the view by which readers know them."""

from dataclasses import dataclass
from typing import Final

from tally.config.names import row_tables
from tally.errors import ConfigError
from tally.mysql.transactions import Database, Transaction

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
        row_count bigint unsigned null,
        primary key (set_id),
        key sets_of_segment (segment_id, attempt),
        key sets_of_partition (topic_id, partition_id, state, from_offset),
        key sets_by_state (state)
    ) engine = InnoDB default character set utf8mb4 comment = '{comment}'
"""
_KEPT: Final = """
    create table if not exists `{kept}` (
        set_id bigint unsigned not null,
        record_offset bigint not null,
        log_time datetime not null,
        value longblob null,
        key_digest binary(32) null,
        primary key (set_id, record_offset),
        key rows_by_minute (log_time),
        key rows_by_key (key_digest)
    ) engine = InnoDB default character set utf8mb4
"""
# Whoever reads it needs no more rights than on the tables.
_VIEW: Final = """
    create or replace sql security invoker view `{view}` as
    select s.topic, s.topic_id, s.partition_id, r.record_offset, r.log_time, r.value, s.segment_id,
        s.batch_id
    from `{kept}` r join `{sets}` s using (set_id)
    where s.state = 'live'{first}
"""
_FIRST_OF_KEY: Final = """ and not exists (
        select 1 from `{kept}` o join `{sets}` t using (set_id)
        where o.key_digest = r.key_digest and t.state = 'live'
        and (t.topic, t.topic_id, t.partition_id, o.record_offset)
            < (s.topic, s.topic_id, s.partition_id, r.record_offset))
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class RowTables:
    """The tables of one pipeline's lines, on one server."""

    database: Database
    """The server and the database."""
    view: str
    """The view that readers use; a validated setting, safe in statements."""

    @property
    def kept(self) -> str:
        """The table of rows."""
        return row_tables(self.view)[0]

    @property
    def sets(self) -> str:
        """The table of sets."""
        return row_tables(self.view)[1]

    def is_prepared(self, pipeline: str, *, is_keyed: bool) -> bool:
        """Whether tables and view are there, and the view as it is to be."""
        with self.database.transaction(read_only=True) as tx:
            there = self._there(tx)
        comment = _comment(pipeline, is_keyed=is_keyed)
        return len(there) == len(self._names) and there[self.sets] == ("BASE TABLE", comment)

    def prepare(self, pipeline: str, *, is_keyed: bool, is_recorded: bool) -> None:
        """Create tables and view, or change the view.

        Args:
            pipeline: Whose lines are kept.
            is_keyed: Whether the view has of lines with the same key only the first.
            is_recorded: Whether the ledger knows that the pipeline keeps its lines here.

        Raises:
            ConfigError: The tables have the lines of another pipeline, or of another ledger.
        """
        comment = _comment(pipeline, is_keyed=is_keyed)
        names = {"view": self.view, "kept": self.kept, "sets": self.sets, "comment": comment}
        with self.database.transaction() as tx:
            self._check_unowned(tx, pipeline, is_recorded=is_recorded)
            tx.execute(_SETS.format(**names))
            tx.execute(_KEPT.format(**names))
            first = _FIRST_OF_KEY.format(**names) if is_keyed else ""
            tx.execute(_VIEW.format(**names, first=first))
            # Last, as it says that all else is there.
            tx.execute(f"alter table `{self.sets}` comment = '{comment}'")

    def _there(self, tx: Transaction) -> dict[str, tuple[str, str]]:
        """Kind and comment of the tables and the view that are there, by name."""
        rows = tx.rows(
            "select table_name as `name`, table_type as kind, table_comment as comment"
            " from information_schema.tables where table_schema = database() and table_name in %s",
            (self._names,),
        )
        return {row["name"]: (row["kind"], row["comment"]) for row in rows}

    @property
    def _names(self) -> tuple[str, str, str]:
        return self.view, self.kept, self.sets

    def _check_unowned(self, tx: Transaction, pipeline: str, *, is_recorded: bool) -> None:
        ours = {_comment(pipeline, is_keyed=is_keyed) for is_keyed in (False, True)}
        for name, (kind, comment) in self._there(tx).items():
            wrong = ""
            if (kind == "VIEW") != (name == self.view):
                wrong = "is something else"
            elif name == self.sets and comment not in ours:
                wrong = f"says that it has {comment or 'something else'}"
            elif name == self.sets and not is_recorded and not self._is_empty(tx):
                wrong = "has rows that the ledger knows nothing of"
            if wrong:
                raise ConfigError(
                    f"pipelines.{pipeline}.rows_table = {self.view!r}: {name} exists and {wrong}",
                    next_step="name a view that does not exist yet; tally migrate creates it",
                )

    def _is_empty(self, tx: Transaction) -> bool:
        return tx.row(f"select 1 from `{self.sets}` limit 1") is None


def _comment(pipeline: str, *, is_keyed: bool) -> str:
    """What the table of sets says of itself."""
    return f"lines of pipeline {pipeline}" + (", the first of each key" if is_keyed else "")
