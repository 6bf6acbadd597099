"""Lines as Parquet files, one for each set, in a folder of any file system that PyArrow knows.

A file is complete before its set is sealed, is never written to again, and has the number of its
set: so a late writer writes a file without an entry. Which files are live is known by the view, and
by a list beside the files that follows it.
"""

import json
import re
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tally.deliveries.contract import LineWriter
from tally.deliveries.folder import OPEN, Folder, opened
from tally.deliveries.set_store import KeptSet, SetStore
from tally.deliveries.set_tables import SetPlace
from tally.errors import ConfigError, FilesUnavailableError
from tally.mysql.transactions import Transaction

LIST: Final = "_live/files.txt"
"""The live files, below the folder: an address in each line."""
_OWNER: Final = "_tally.json"
_LINES: Final = "lines"
_FILE: Final = re.compile(rf"{_LINES}/[^/]+/\d+/\d{{20}}-(\d+)\.parquet|{OPEN}/(\d+)\.parquet")

_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("topic_id", pa.string()),
        ("partition_id", pa.int32()),
        ("record_offset", pa.int64()),
        ("log_time", pa.timestamp("ms")),
        ("value", pa.binary()),
        ("segment_id", pa.int64()),
        ("batch_id", pa.int64()),
    ]
)
# The path is that of `_path`.
_VIEW: Final = """
    create or replace sql security invoker view `{view}` as
    select concat('{url}/lines/', topic, '/', partition_id, '/', lpad(from_offset, 20, '0'), '-',
            coalesce(file_id, set_id), '.parquet') as file,
        topic, topic_id, partition_id, from_offset, until_offset, line_count, segment_id, batch_id,
        cluster_id
    from `{sets}` where state = 'live' and line_count > 0
"""
_VERSION: Final = 3
"""Of the view; another one is another comment, so that the view is made again."""

_READERS: Final = 16
"""Files that an audit reads at a time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FileSets(SetStore):
    """The lines are Parquet files below a folder."""

    noun: ClassVar[str] = "files"
    remedy: ClassVar[str] = (
        "mount it where it is missing: driver and executors must see the same; tally migrate makes "
        "a new one"
    )
    # A query that has begun reads the files that it has found.
    kept_s: ClassVar[int] = 3_600

    @property
    def url(self) -> str:
        """The folder, as ``file:///srv/lines`` or ``s3://bucket/lines``; safe in statements."""
        return str(self.pipeline.files_url)

    @property
    def version(self) -> str:
        """Of the view, which has the addresses of files."""
        return f"view {_VERSION}, {self.url}"

    def view_statement(self) -> str:
        """The view of live files."""
        return _VIEW.format(view=self.view, sets=self.sets, url=self.url)

    def lacks(self, tx: Transaction) -> str:  # noqa: ARG002
        """The file that names the owner of the folder, when there is none.

        Raises:
            ConfigError: It names another owner.
        """
        with opened(self.url) as folder:
            told = folder.read(_OWNER)
        if told is None:
            return f"{self.url} has no {_OWNER}, which says whose folder it is"
        try:
            named = json.loads(told)["files_of"]
        except (ValueError, LookupError, TypeError):
            return f"{self.url}/{_OWNER} does not say whose folder it is"
        if named != self.owner:
            raise ConfigError(
                f"{self.url}/{_OWNER} says that the folder has files of {named}; this is "
                f"{self.owner}",
                next_step=self._own_folder,
            )
        return ""

    def is_moved(self) -> bool:
        """Whether the files so far are in another folder."""
        with self.database.transaction(read_only=True) as tx:
            there = self._there(tx)
        return self.sets in there and not there[self.sets][1].endswith(f", {self.url}")

    def prepare_else(self, tx: Transaction, kept: Sequence[SetPlace] | None) -> None:
        """Create the folder, with a file that names its owner."""
        is_lacking = self.lacks(tx)
        with opened(self.url) as folder:
            if not is_lacking:
                folder.delete(LIST)  # it may have the addresses of another place
                return
            if kept is not None:
                self._check_files(folder, kept)
            elif any(_number_of(path) is not None for path in folder.list(_LINES)):
                raise ConfigError(
                    f"{self.url} has files of lines already, and nothing says whose they are",
                    next_step=self._own_folder,
                )
            folder.put(_OWNER, json.dumps({"files_of": self.owner}).encode())

    @property
    def _own_folder(self) -> str:
        return f"give pipelines.{self.pipeline.name}.files_url a folder of its own"

    def _check_files(self, folder: Folder, kept: Sequence[SetPlace]) -> None:
        """Raise unless a folder that does not say whose it is has the files of live sets."""
        if not kept or not all(folder.has(_path(place)) for place in kept):
            raise ConfigError(
                f"pipeline {self.pipeline.name} has kept lines in files, and {self.url} has "
                f"neither {_OWNER} nor these files",
                next_step=f"set pipelines.{self.pipeline.name}.files_url back, or copy the whole "
                "folder there",
            )

    def writer(self, place: SetPlace) -> LineWriter:
        """What writes the file of an open set; without lines there is none."""
        return _FileWriter(self, place)

    def count(self, tx: Transaction, place: SetPlace) -> int:  # noqa: ARG002
        """How many lines the file of a set has."""
        with opened(self.url) as folder:
            try:
                with folder.open(_path(place)) as file:
                    return int(pq.ParquetFile(file).metadata.num_rows)
            except FileNotFoundError:
                return 0

    def find(self, tx: Transaction, places: Sequence[SetPlace]) -> list[KeptSet]:  # noqa: ARG002
        """The lines of some sets by minute."""
        with opened(self.url) as folder, ThreadPoolExecutor(_READERS) as pool:
            return list(pool.map(partial(_found, folder), places))

    def erase(self, place: SetPlace, first: int, until: int, *, dry_run: bool = False) -> int:
        """Write a set's lines to another file, without the text at some offsets, and swap them.

        The new file is that of a dropped set until then, and the old one after that: whichever is
        left when this process dies is deleted with it, and readers see one of the two. When another
        one swaps the file meanwhile, all is done again with the new one.

        Raises:
            FilesUnavailableError: Its file is missing.
        """
        while (now := self.as_it_is(place)) is not None:
            with opened(self.url) as folder:
                try:
                    number = _texts(folder, now, first, until)
                    if dry_run or not number:
                        return number
                    spare = self.new_spare(now)
                    _write_without(folder, now, spare, range(first, until))
                except FileNotFoundError as error:
                    if self.as_it_is(place) != now:
                        continue
                    raise FilesUnavailableError(
                        f"{self.url}/{_path(now)}, with lines to erase, is missing",
                        next_step="restore the file, and run it again",
                    ) from error
            is_swapped = self.swap_files(now, spare)
            self.inform_readers()
            self.delete_dropped()
            if is_swapped:
                return number
        return 0

    def delete(self, place: SetPlace) -> None:
        """Delete the file of a dropped set."""
        with opened(self.url) as folder:
            for path in (_path(place), _open_path(place)):
                folder.delete(path)

    def inform_readers(self) -> None:
        """Write the list of live files, if it has changed."""
        with opened(self.url) as folder:
            listed = self._list()
            while listed != folder.read(LIST):
                folder.put(LIST, listed)
                # Another one may have written a newer list since this one was asked for.
                listed = self._list()

    def _list(self) -> bytes:
        return "".join(f"{self.url}/{_path(place)}\n" for place in self.live()).encode()

    def delete_orphans(self) -> int:
        """Delete the files of sets that are not there any more.

        A set is there before its file is begun, and the files are listed before sets are asked for.
        """
        with opened(self.url) as folder:
            of_sets = [
                (number, path)
                for below in (_LINES, OPEN)
                for path in folder.list(below)
                if (number := _number_of(path)) is not None
            ]
            there = self.known_files([number for number, _ in of_sets])
            orphans = [(number, path) for number, path in of_sets if number not in there]
            for _, path in orphans:
                folder.delete(path)
        return len(dict(orphans))


class _FileWriter(LineWriter):
    """Writes the file of a set, some lines at a time."""

    lines_at_once: ClassVar[int] = 50_000
    bytes_at_once: ClassVar[int] = 32 * 2**20
    _store: FileSets
    _parquet: Any = None
    _stream: Any = None

    def write(self, lines: Sequence[pa.RecordBatch]) -> None:
        found = pa.Table.from_batches(lines)
        of_set = asdict(self._place)
        columns = {
            "record_offset": found["offset"],
            "log_time": found["minute"].cast(_SCHEMA.field("log_time").type),
            "value": found["value"],
        }
        for name in _SCHEMA.names:
            if name not in columns:
                one = pa.scalar(of_set[name], _SCHEMA.field(name).type)
                columns[name] = pa.repeat(one, found.num_rows)
        table = pa.Table.from_arrays([columns[name] for name in _SCHEMA.names], schema=_SCHEMA)
        with opened(self._store.url) as folder:
            if self._parquet is None:
                self._stream = folder.create(self._begun(folder))
                self._parquet = _parquet_writer(self._stream)
            self._parquet.write_table(table)

    def close(self) -> None:
        if self._parquet is None:
            return
        with opened(self._store.url) as folder:
            self._parquet.close()
            self._stream.close()
            # Deleted with a dropped set: sealing it will say so.
            with suppress(FileNotFoundError):
                folder.finish(self._begun(folder), _path(self._place))

    def discard(self) -> None:
        if self._stream is not None:
            with suppress(OSError):  # the disk may be full
                self._stream.close()
        self._store.delete(self._place)

    def _begun(self, folder: Folder) -> str:
        return _open_path(self._place) if folder.is_local else _path(self._place)


def _has_text(lines: pa.RecordBatch, first: int, until: int) -> Any:
    """Which of some lines are at these offsets and have their text."""
    offset = lines["record_offset"]
    is_inside = pc.and_(pc.greater_equal(offset, first), pc.less(offset, until))
    return pc.and_(is_inside, pc.is_valid(lines["value"]))


def _texts(folder: Folder, place: SetPlace, first: int, until: int) -> int:
    """How many lines of a set's file at some offsets have their text."""
    with folder.open(_path(place)) as file:
        read = pq.ParquetFile(file).iter_batches(columns=["record_offset", "value"])
        return sum(int(pc.sum(_has_text(lines, first, until)).as_py() or 0) for lines in read)


def _write_without(folder: Folder, place: SetPlace, spare: SetPlace, erased: range) -> None:
    """Write the lines of a set to the file of another, without the text at some offsets."""
    begun = _open_path(spare) if folder.is_local else _path(spare)
    column = _SCHEMA.names.index("value")
    with folder.open(_path(place)) as file, folder.create(begun) as stream:
        lines = pq.ParquetFile(file, page_checksum_verification=True)
        with _parquet_writer(stream) as parquet:
            for some in lines.iter_batches():
                has_text = _has_text(some, erased.start, erased.stop)
                value = pc.if_else(has_text, pa.scalar(None, pa.binary()), some["value"])
                parquet.write_batch(some.set_column(column, "value", value))
    folder.finish(begun, _path(spare))


def _parquet_writer(stream: Any) -> pq.ParquetWriter:
    return pq.ParquetWriter(stream, _SCHEMA, compression="zstd", write_page_checksum=True)


def _found(folder: Folder, place: SetPlace) -> KeptSet:
    """The lines of a file by minute, or what is wrong with it."""
    minutes: Counter[str] = Counter()
    trouble = ""
    try:
        with folder.open(_path(place)) as file:
            parquet = pq.ParquetFile(file, page_checksum_verification=True)
            if not parquet.schema_arrow.equals(_SCHEMA):
                trouble = "has other columns than those that Tally writes"
            for batch in () if trouble else parquet.iter_batches(columns=["log_time"]):
                for group in batch.column(0).value_counts().to_pylist():
                    minutes[f"{group['values']:%Y-%m-%d %H:%M:%S}"] += group["counts"]
    except FileNotFoundError:
        minutes.clear()
    # Most damage is an OSError to PyArrow; a null is no time.
    except (OSError, TypeError, pa.ArrowException) as error:
        minutes.clear()
        trouble = f"cannot be read: {error}"
    told = f"its file {_path(place)} {trouble}" if trouble else ""
    return KeptSet(place=place, minutes=minutes, trouble=told)


def _path(place: SetPlace) -> str:
    """Of the file of a set, below the folder; the view has it, too."""
    name = f"{place.from_offset:020}-{place.number}.parquet"
    return f"{_LINES}/{place.topic}/{place.partition_id}/{name}"


def _open_path(place: SetPlace) -> str:
    """Of a file that is being written on a local disk."""
    return f"{OPEN}/{place.number}.parquet"


def _number_of(path: str) -> int | None:
    """The number of a file; None for a file that is none of a set."""
    found = _FILE.fullmatch(path)
    return int(found[1] or found[2]) if found else None
