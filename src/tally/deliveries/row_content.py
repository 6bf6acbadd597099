"""Lines as rows of a table, written by statements or by a stored procedure."""

import base64
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tally.aggregates.counts import KeptLine
from tally.config.names import KEPT_SUFFIX
from tally.deliveries.content import Found, Owner, Run, SetPlace
from tally.errors import ConfigError, StatementError
from tally.mysql.transactions import Transaction
from tally.packaged import packaged

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
        s.batch_id, s.cluster_id
    from `{kept}` r join `{sets}` s using (set_id)
    where s.state = 'live'{first}
"""
_FIRST_OF_KEY: Final = """ and not exists (
        select 1 from `{kept}` o join `{sets}` t using (set_id)
        where o.key_digest = r.key_digest and t.state = 'live'
        and (t.topic, t.topic_id, t.cluster_id, t.partition_id, o.record_offset)
            < (s.topic, s.topic_id, s.cluster_id, s.partition_id, r.record_offset))
"""
_VERSION: Final = 3
"""Of the view; another one is another comment, so that the view is made again."""

_MADE_BY_TALLY: Final = "writes the lines of "
_COMMENT: Final = "comment 'Writes lines of an open set; the same lines again change nothing.'"
"""In the procedure's text: in its place stands whose lines they are."""

_DELETED_AT_ONCE: Final = 10_000
_ROWS_AT_ONCE: Final = 5_000
_BYTES_AT_ONCE: Final = 8 * 2**20

# Escaping may double a value; each line has words of its own in a statement.
_ESCAPED: Final = 2
_WORDS: Final = 1_024


@dataclass(frozen=True, kw_only=True, slots=True)
class RowContent:
    """The lines are rows; of lines with the same key the view has the first one."""

    view: str
    """The view that readers use."""
    owner: Owner
    """Whose lines they are."""
    row_key: Sequence[str] = ()
    """The fields of the key; empty for all lines."""
    procedure: str | None = None
    """The stored procedure that writes the rows; None when statements do."""

    @property
    def kept(self) -> str:
        """The table of rows."""
        return self.view + KEPT_SUFFIX

    @property
    def noun(self) -> str:
        """What the tables have."""
        return "lines"

    @property
    def version(self) -> str:
        """Of the view, by its key."""
        fields = json.dumps(sorted(self.row_key)).encode()
        key = hashlib.sha256(fields).hexdigest()[:16] if self.row_key else "none"
        return f"view {_VERSION}, key {key}"

    @property
    def kept_s(self) -> int:
        """Rows of dropped sets are deleted at once: a reader has a snapshot."""
        return 0

    def tables(self) -> Mapping[str, str]:
        """The table of rows."""
        return {self.kept: _KEPT.format(kept=self.kept)}

    def view_statement(self, sets: str) -> str:
        """The view of rows of live sets."""
        names = {"view": self.view, "kept": self.kept, "sets": sets}
        first = _FIRST_OF_KEY.format(**names) if self.row_key else ""
        return _VIEW.format(**names, first=first)

    def lacks(self, tx: Transaction) -> str:
        """The procedure, when it is not there or may not be called; else nothing.

        Raises:
            ConfigError: It was made for another pipeline.
        """
        if self.procedure is None:
            return ""
        found = tx.row(
            "select routine_comment as comment from information_schema.routines"
            " where routine_schema = database() and routine_type = 'PROCEDURE'"
            " and routine_name = %s",
            (self.procedure,),
        )
        if found is None:
            return f"the procedure {self.procedure} is not there, or this user may not call it"
        comment = str(found["comment"])
        if comment.startswith(_MADE_BY_TALLY) and comment != self._comment:
            raise ConfigError(
                f"pipelines.{self.owner.pipeline}.row_procedure = {self.procedure!r}: it was made "
                f"for {comment.removeprefix(_MADE_BY_TALLY)}, whose tables it writes to",
                next_step="name a procedure that does not exist yet; tally migrate creates it",
            )
        return ""

    @property
    def _comment(self) -> str:
        """Of a procedure that Tally makes; one without such a comment is the database's own."""
        return f"{_MADE_BY_TALLY}{self.owner.name}"

    @property
    def remedy(self) -> str:
        """The procedure is created by a migration."""
        return f"tally migrate, or: grant execute on procedure {self.procedure} to this user"

    def is_moved(self, comment: str) -> bool:  # noqa: ARG002
        """Never: rows are on the server of the tables."""
        return False

    def prepare(self, tx: Transaction, sets: str, kept: Sequence[SetPlace] | None) -> None:  # noqa: ARG002
        """Create the procedure; an existing one is the database's own and stays."""
        if self.procedure is not None and self.lacks(tx):
            text = packaged("sql/procedures/keep_lines.sql").read_text()
            names = {"keep_lines": self.procedure, "kept_lines": self.kept, "line_sets": sets}
            for name, own in names.items():
                text = text.replace(f"`{name}`", f"`{own}`")
            tx.execute(text.replace(_COMMENT, f"comment '{self._comment}'"))

    def writer(self, place: SetPlace, run_locked: Run, packet_bytes: int) -> "_RowWriter":
        """What writes rows of an open set; the same rows again change nothing."""
        put = self._insert if self.procedure is None else self._call
        return _RowWriter(self, place, run_locked, packet_bytes, put)

    def _insert(self, tx: Transaction, set_id: int, lines: Sequence[KeptLine]) -> None:
        # Only with a parameter for each value the driver sends several rows in one statement.
        tx.insert_many(
            f"insert into `{self.kept}` (set_id, record_offset, log_time, value, key_digest)"
            " values (%s, %s, %s, %s, %s)"
            f" on duplicate key update set_id = `{self.kept}`.set_id",
            [(set_id, *line) for line in lines],
        )

    def _call(self, tx: Transaction, set_id: int, lines: Sequence[KeptLine]) -> None:
        told = [
            {
                "record_offset": line.offset,
                "log_time": line.log_time,
                "value": _base64(line.value),
                "key_digest": _base64(line.key_digest),
            }
            for line in lines
        ]
        tx.execute(f"call `{self.procedure}`(%s, %s)", (set_id, json.dumps(told)))

    def count(self, tx: Transaction, place: SetPlace) -> int:
        """How many rows a set has."""
        found = tx.row(
            f"select count(*) as n from `{self.kept}` where set_id = %s", (place.set_id,)
        )
        return int(found["n"]) if found else 0

    def find(self, tx: Transaction, places: Sequence[SetPlace]) -> Mapping[int, Found]:
        """The rows of some sets by minute."""
        rows = tx.rows(
            "select set_id, cast(log_time as char) as log_time, count(*) as `rows`"
            f" from `{self.kept}` where set_id in %s group by set_id, log_time",
            ([place.set_id for place in places],),
        )
        minutes: dict[int, dict[str, int]] = {}
        for row in rows:
            minutes.setdefault(row["set_id"], {})[row["log_time"]] = row["rows"]
        return {set_id: Found(minutes=of) for set_id, of in minutes.items()}

    def delete(self, place: SetPlace, run: Run) -> None:
        """Delete the rows of a dropped set, some at a time."""
        statement = f"delete from `{self.kept}` where set_id = %s limit {_DELETED_AT_ONCE}"
        while run(lambda tx: tx.execute(statement, (place.set_id,))):
            pass

    def tell(self, live: Callable[[], Iterator[SetPlace]]) -> None:
        """Nothing: whoever reads rows asks the database."""

    def orphans(self, known: Callable[[Sequence[int]], set[int]]) -> int:  # noqa: ARG002
        """None: a row is written under the lock of its set."""
        return 0


@dataclass(frozen=True, slots=True)
class _RowWriter:
    """Writes rows under the lock of their set."""

    content: RowContent
    place: SetPlace
    run_locked: Run
    packet_bytes: int
    put: Callable[[Transaction, int, Sequence[KeptLine]], None]

    @property
    def lines_at_once(self) -> int:
        return _ROWS_AT_ONCE

    @property
    def bytes_at_once(self) -> int:
        return min(_BYTES_AT_ONCE, self.packet_bytes // (2 * _ESCAPED))

    def write(self, lines: Sequence[KeptLine]) -> None:
        if sum(map(_statement_bytes, lines)) <= self.packet_bytes:
            self.run_locked(lambda tx: self.put(tx, self.place.set_id, lines))
        elif len(lines) > 1:
            half = len(lines) // 2
            self.write(lines[:half])
            self.write(lines[half:])
        else:
            self._refuse(lines[0])

    def close(self) -> None:
        """Nothing: each part was committed."""

    def discard(self) -> None:
        """Nothing: whoever has dropped the set deletes its rows."""

    def _refuse(self, line: KeptLine) -> None:
        """Raise before the server ends the connection, which would look as if it were down."""
        raise StatementError(
            f"the record at offset {line.offset} of {self.place.topic}/{self.place.partition_id} "
            f"has {len(line.value or b''):,} bytes and may need {_statement_bytes(line):,} in a "
            f"statement; max_allowed_packet of the server of {self.content.view} is "
            f"{self.packet_bytes:,}",
            next_step="raise max_allowed_packet on that server, and run it again",
        )


def _statement_bytes(line: KeptLine) -> int:
    """How many bytes a line may need in a statement."""
    return _ESCAPED * len(line.value or b"") + _WORDS


def _base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode("ascii")
