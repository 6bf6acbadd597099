"""The tables of kept lines, and the view by which readers know them."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tally.config.names import row_tables
from tally.errors import ConfigError, SchemaError
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
        key rows_of_set (set_id, log_time),
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


_VERSION: Final = 1
"""Of the view; another one is another comment, so that the view is made again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Owner:
    """Whose lines are in some tables: their comment says it, and how the view was made."""

    pipeline: str
    """The pipeline."""
    ledger_id: str
    """The ledger that decides which lines are shown."""
    row_key: Sequence[str] = ()
    """The fields of which the view has the first line only."""

    @property
    def name(self) -> str:
        """The pipeline and the ledger, as the comment begins."""
        return f"lines of pipeline {self.pipeline}, ledger {self.ledger_id}"

    @property
    def comment(self) -> str:
        """The whole comment."""
        fields = json.dumps(sorted(self.row_key)).encode()
        key = hashlib.sha256(fields).hexdigest()[:16] if self.row_key else "none"
        return f"{self.name}, view {_VERSION}, key {key}"


@dataclass(frozen=True, kw_only=True, slots=True)
class RowTables:
    """The tables of one pipeline's lines, on one server."""

    database: Database
    """The server and the database."""
    view: str
    """The view that readers use; a validated setting, safe in statements."""
    owner: Owner
    """Whose lines they have."""

    @property
    def kept(self) -> str:
        """The table of rows."""
        return row_tables(self.view)[0]

    @property
    def sets(self) -> str:
        """The table of sets."""
        return row_tables(self.view)[1]

    def is_prepared(self) -> bool:
        """Whether tables and view are there, the owner's, and as they are to be."""
        with self.database.transaction(read_only=True) as tx:
            return self._is_prepared(tx)

    def check(self) -> None:
        """Raise unless tables and view are there, the owner's, and as they are to be.

        Raises:
            ConfigError: The tables have the lines of another pipeline, or of another ledger.
            SchemaError: They are not there, or the view is to be made again.
        """
        with self.database.transaction(read_only=True) as tx:
            self._check_owner(tx)
            if not self._is_prepared(tx):
                raise SchemaError(
                    f"the view {self.view} of the lines of pipeline {self.owner.pipeline} is not "
                    "there, or is to be made again",
                    next_step="tally migrate",
                )

    def prepare(self, *, has_lines: bool) -> None:
        """Create tables and view, or change the view.

        Args:
            has_lines: Whether the ledger has segments whose lines must be in these tables.

        Raises:
            ConfigError: The tables have the lines of another pipeline, or of another ledger; or
                they are not there, and the lines so far must be elsewhere.
        """
        names = {"view": self.view, "kept": self.kept, "sets": self.sets}
        comment = self.owner.comment
        with self.database.transaction() as tx:
            self._check_owner(tx)
            if has_lines and self.sets not in self._there(tx):
                raise ConfigError(
                    f"pipeline {self.owner.pipeline} has kept lines, and there is no {self.sets} "
                    f"in database {self.database.settings.database} of "
                    f"{self.database.settings.host}",
                    next_step=f"set [{self.database.settings.section}] back to the server that has "
                    f"them, or copy {self.kept} and {self.sets} there",
                )
            tx.execute(_SETS.format(**names, comment=comment))
            tx.execute(_KEPT.format(**names))
            first = _FIRST_OF_KEY.format(**names) if self.owner.row_key else ""
            tx.execute(_VIEW.format(**names, first=first))
            # Last, as it says that all else is there.
            tx.execute(f"alter table `{self.sets}` comment = '{comment}'")

    def _is_prepared(self, tx: Transaction) -> bool:
        there = self._there(tx)
        return len(there) == len(self._names) and there[self.sets][1] == self.owner.comment

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

    def _check_owner(self, tx: Transaction) -> None:
        for name, (kind, comment) in self._there(tx).items():
            wrong = ""
            if (kind == "VIEW") != (name == self.view):
                wrong = "is something else"
            elif name == self.sets and not comment.startswith(f"{self.owner.name},"):
                wrong = f"says that it has {comment or 'something else'}"
            if wrong:
                raise ConfigError(
                    f"pipelines.{self.owner.pipeline}.rows_table = {self.view!r}: {name} exists "
                    f"and {wrong}; this is ledger {self.owner.ledger_id}",
                    next_step="name a view that does not exist yet; tally migrate creates it",
                )
