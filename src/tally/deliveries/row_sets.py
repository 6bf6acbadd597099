"""Lines as rows of a table, written by statements or by a stored procedure."""

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from tally.aggregates.counts import KEPT, KeptLine
from tally.config.names import KEPT_SUFFIX
from tally.deliveries.contract import LineWriter
from tally.deliveries.set_store import KeptSet, SetStore
from tally.deliveries.set_tables import SetPlace
from tally.errors import ConfigError, StatementError
from tally.mysql.transactions import Transaction
from tally.packaged import packaged

if TYPE_CHECKING:  # as in the contract
    import pyarrow as pa

_KEPT: Final = """
    create table if not exists `{kept}` (
        set_id bigint unsigned not null,
        record_offset bigint not null,
        log_time datetime not null,
        value longblob null,
        key_digest binary(32) null,
        primary key (set_id, record_offset),
        key rows_by_minute (log_time){by_key}
    ) engine = InnoDB default character set utf8mb4
"""
# Each index takes as much time as the row itself, so that there is none without need.
_BY_KEY: Final = "key rows_by_key (key_digest)"
# A reader needs no more rights than on the tables.
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
_VERSION: Final = 4
"""Of the view; another one is another comment, so that the view is made again."""

_MADE_BY_TALLY: Final = "writes the lines of "
_COMMENT: Final = "comment 'Writes lines of an open set; the same lines again change nothing.'"
"""In the procedure's text: in its place stands whose lines they are."""

_CHANGED_AT_ONCE: Final = 10_000

# Escaping may double a value; each line has words of its own in a statement.
_ESCAPED: Final = 2
_WORDS: Final = 1_024


@dataclass(frozen=True, kw_only=True, slots=True)
class RowSets(SetStore):
    """The lines are rows; of lines with the same key the view has the first one."""

    noun: ClassVar[str] = "lines"
    remedy: ClassVar[str] = "tally migrate creates it, or: grant execute on it to this user"

    @property
    def kept(self) -> str:
        """The table of rows."""
        return self.view + KEPT_SUFFIX

    @property
    def version(self) -> str:
        """Of the view, by its key."""
        fields = json.dumps(sorted(self.pipeline.row_key)).encode()
        key = hashlib.sha256(fields).hexdigest()[:16] if self.pipeline.row_key else "none"
        return f"view {_VERSION}, key {key}"

    def tables(self) -> Mapping[str, str]:
        """The table of rows."""
        by_key = f",\n        {_BY_KEY}" if self.pipeline.row_key else ""
        return {self.kept: _KEPT.format(kept=self.kept, by_key=by_key)}

    def view_statement(self) -> str:
        """The view of rows of live sets."""
        names = {"view": self.view, "kept": self.kept, "sets": self.sets}
        first = _FIRST_OF_KEY.format(**names) if self.pipeline.row_key else ""
        return _VIEW.format(**names, first=first)

    def lacks(self, tx: Transaction) -> str:
        """The procedure, when it is not there or may not be called; else nothing.

        Raises:
            ConfigError: It was made for another pipeline.
        """
        procedure = self.pipeline.procedure
        if procedure is None:
            return ""
        found = tx.scalar(
            "select routine_comment from information_schema.routines"
            " where routine_schema = database() and routine_type = 'PROCEDURE'"
            " and routine_name = %s",
            (procedure,),
        )
        if found is None:
            return f"the procedure {procedure} is not there, or this user may not call it"
        comment = str(found)
        # One without such a comment is the database's own.
        if comment.startswith(_MADE_BY_TALLY) and comment != f"{_MADE_BY_TALLY}{self.owner}":
            raise ConfigError(
                f"pipelines.{self.pipeline.name}.row_procedure = {procedure!r}: it was made for "
                f"{comment.removeprefix(_MADE_BY_TALLY)}, whose tables it writes to",
                next_step="name a procedure that does not exist yet; tally migrate creates it",
            )
        return ""

    def prepare_else(self, tx: Transaction, kept: Sequence[SetPlace] | None) -> None:  # noqa: ARG002
        """Create the procedure; an existing one is the database's own and stays.

        A table that was made before there was a key gets the index of the key.
        """
        indexes = tx.scalars(
            "select distinct index_name from information_schema.statistics"
            " where table_schema = database() and table_name = %s",
            (self.kept,),
        )
        if indexes and self.pipeline.row_key and "rows_by_key" not in indexes:
            tx.execute(f"alter table `{self.kept}` add {_BY_KEY}")
        if self.lacks(tx):
            text = packaged("sql/procedures/keep_lines.sql").read_text()
            names = {
                "keep_lines": self.pipeline.procedure,
                "kept_lines": self.kept,
                "line_sets": self.sets,
            }
            for name, own in names.items():
                text = text.replace(f"`{name}`", f"`{own}`")
            tx.execute(text.replace(_COMMENT, f"comment '{_MADE_BY_TALLY}{self.owner}'"))

    def writer(self, place: SetPlace) -> LineWriter:
        """What writes rows of an open set; the same rows again change nothing."""
        return _RowWriter(self, place)

    def put(self, tx: Transaction, place: SetPlace, lines: Sequence[KeptLine]) -> None:
        """Write lines in as many statements as the server needs.

        Raises:
            StatementError: A line is longer than it takes: it would end the connection, which would
                look as if it were down.
        """
        packet_bytes = int(tx.scalar("select @@max_allowed_packet"))
        write = self._insert if self.pipeline.procedure is None else self._call
        for part in _parts(lines, packet_bytes):
            if (needed := _statement_bytes(part)) > packet_bytes:
                raise StatementError(
                    f"the record at offset {part[0].offset} of {place.topic}/{place.partition_id} "
                    f"has {len(part[0].value or b''):,} bytes and may need {needed:,} in a "
                    f"statement; max_allowed_packet of the server of {self.view} is "
                    f"{packet_bytes:,}",
                    next_step="raise max_allowed_packet on that server, and run it again",
                )
            write(tx, place.set_id, part)

    def _insert(self, tx: Transaction, set_id: int, lines: Sequence[KeptLine]) -> None:
        tx.insert_many(
            f"insert into `{self.kept}` (set_id, record_offset, log_time, value, key_digest)"
            " values %s"
            f" on duplicate key update set_id = `{self.kept}`.set_id",
            [(set_id, *line) for line in lines],
        )

    def _call(self, tx: Transaction, set_id: int, lines: Sequence[KeptLine]) -> None:
        sent = [
            {
                "record_offset": line.offset,
                "log_time": line.log_time,
                "value": _base64(line.value),
                "key_digest": _base64(line.key_digest),
            }
            for line in lines
        ]
        tx.execute(f"call `{self.pipeline.procedure}`(%s, %s)", (set_id, json.dumps(sent)))

    def count(self, tx: Transaction, place: SetPlace) -> int:
        """How many rows a set has."""
        statement = f"select count(*) from `{self.kept}` where set_id = %s"
        return int(tx.scalar(statement, (place.set_id,)))

    def find(self, tx: Transaction, places: Sequence[SetPlace]) -> list[KeptSet]:
        """The rows of some sets by minute."""
        minutes: dict[int, dict[str, int]] = {place.set_id: {} for place in places}
        for row in tx.rows(
            "select set_id, cast(log_time as char) as log_time, count(*) as `rows`"
            f" from `{self.kept}` where set_id in %s group by set_id, log_time",
            (list(minutes),),
        ):
            minutes[row["set_id"]][row["log_time"]] = row["rows"]
        return [KeptSet(place=place, minutes=minutes[place.set_id]) for place in places]

    def erase(self, place: SetPlace, first: int, until: int, *, dry_run: bool = False) -> int:
        """Take the text of a set's rows at some offsets, some at a time."""
        which = "set_id = %s and record_offset >= %s and record_offset < %s and value is not null"
        values, erased = (place.set_id, first, until), 0
        if dry_run:
            with self.database.transaction(read_only=True) as tx:
                return int(tx.scalar(f"select count(*) from `{self.kept}` where {which}", values))
        some = f"update `{self.kept}` set value = null where {which} limit {_CHANGED_AT_ONCE}"
        while number := self._until_answered(lambda tx: tx.execute(some, values)):
            erased += number
        return erased

    def delete(self, place: SetPlace) -> None:
        """Delete the rows of a dropped set, some at a time."""
        statement = f"delete from `{self.kept}` where set_id = %s limit {_CHANGED_AT_ONCE}"
        while self._until_answered(lambda tx: tx.execute(statement, (place.set_id,))):
            pass


class _RowWriter(LineWriter):
    """Writes rows under the lock of their set; each part is committed by itself."""

    lines_at_once: ClassVar[int] = 5_000
    bytes_at_once: ClassVar[int] = 8 * 2**20
    _store: RowSets

    def write(self, lines: "Sequence[pa.RecordBatch]") -> None:
        rows = [
            KeptLine(*line)
            for some in lines
            for line in zip(*(some.column(name).to_pylist() for name in KEPT), strict=True)
        ]
        self._store.run_locked(self._place, lambda tx: self._store.put(tx, self._place, rows))


def _parts(lines: Sequence[KeptLine], packet_bytes: int) -> Iterator[Sequence[KeptLine]]:
    """The lines, divided until a statement of each part has not too many bytes, or one line."""
    if len(lines) > 1 and _statement_bytes(lines) > packet_bytes:
        half = len(lines) // 2
        yield from _parts(lines[:half], packet_bytes)
        yield from _parts(lines[half:], packet_bytes)
    else:
        yield lines


def _statement_bytes(lines: Sequence[KeptLine]) -> int:
    """How many bytes lines may need in a statement."""
    return sum(_ESCAPED * len(line.value or b"") + _WORDS for line in lines)


def _base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode("ascii")
