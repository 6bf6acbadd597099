"""The spool: any number of rows in bounded memory."""

import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.unit.values import P0

from tally.aggregates.counts import Contribution
from tally.aggregates.spool import Spool
from tally.errors import UnwritableError

MEMORY_BYTES = 50_000
MANY = 10_000


def contributions(number: int) -> Iterator[Contribution]:
    for n in range(number):
        minute = f"{2000 + n // 525_600}-01-01 {n // 60 % 24:02}:{n % 60:02}:00"
        yield Contribution(partition=P0, log_time=minute, sums=(n + 1,))


def peak_bytes(work: Callable[..., object], *arguments: object) -> int:
    """Peak memory of Python's objects during some work."""
    tracemalloc.start()
    try:
        work(*arguments)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def write(rows: Spool[Contribution]) -> None:
    for row in contributions(MANY):
        rows.append(row)


def check(rows: Spool[Contribution]) -> None:
    assert sum(row.sums[0] for row in rows) == MANY * (MANY + 1) // 2


def test_the_drivers_memory_stays_flat_however_many_rows_there_are() -> None:
    """The rows are in a file and come back one at a time; a list takes many times the memory."""
    with Spool[Contribution](memory_bytes=MEMORY_BYTES) as rows:
        assert peak_bytes(write, rows) < 6 * MEMORY_BYTES
        assert peak_bytes(check, rows) < 6 * MEMORY_BYTES
    assert peak_bytes(list, contributions(MANY)) > 20 * MEMORY_BYTES


def test_a_spool_can_be_walked_again() -> None:
    """A transaction that is run again writes the same rows; of chunks nobody sees anything."""
    for number in (0, 3, 64, 1_001):
        with Spool[Contribution](memory_bytes=1_000) as rows:
            for row in contributions(number):
                rows.append(row)
            assert list(rows) == list(rows) == list(contributions(number))
            assert len(rows) == number


def test_ordered_pieces_come_back_as_one() -> None:
    """Wherever one of them ends; in a file and in memory; and again."""
    for sizes in ((), (3,), (64, 64), (1, 0, 200), (130, 63, 65, 2)):
        pieces = [range(n, 7 * size, 7) for n, size in enumerate(sizes)]
        for memory_bytes in (100, 100_000):
            with Spool[int](memory_bytes=memory_bytes, order=lambda item: item // 2) as rows:
                for piece in pieces:
                    for number in piece:
                        rows.append(number)
                found = list(rows)
                assert found == sorted(found, key=lambda item: item // 2) == list(rows)
                assert sorted(found) == sorted(n for piece in pieces for n in piece)
                assert len(rows) == len(found)


def test_pieces_beyond_the_most_are_kept_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece has a part in memory, and order only saves time."""
    monkeypatch.setattr("tally.aggregates.spool._PIECES_MAX", 3)
    with Spool[int](memory_bytes=100, order=lambda item: item) as rows:
        for number in reversed(range(1_000)):
            rows.append(number)
        assert sorted(rows) == list(range(1_000))
        assert (len(rows), len(rows._pieces)) == (1_000, 3)


def test_a_folder_that_is_missing_is_named_with_the_setting(tmp_path: Path) -> None:
    """Nothing was committed, and the setting chooses another folder."""
    with (
        Spool[str](memory_bytes=10, folder=tmp_path / "nowhere") as spool,
        pytest.raises(UnwritableError, match=r"nowhere.*No such file") as raised,
    ):
        list(map(spool.append, ["more than ten bytes"] * MANY))
    assert "spark.spool_dir" in raised.value.next_step


def test_a_full_disk_is_named_with_what_is_free(tmp_path: Path) -> None:
    """The system refuses to let the file grow; closing it afterwards raises nothing else."""
    program = f"""
import resource
from pathlib import Path
from tally.aggregates.spool import Spool
from tally.errors import UnwritableError
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    with Spool(memory_bytes=1000, folder=Path({str(tmp_path)!r})) as spool:
        for number in range(1_000_000):
            spool.append(number)
except UnwritableError as error:
    print(error)
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f"[unwritable] the counts of the batch do not fit into {tmp_path}" in done.stdout
    assert "MiB free" in done.stdout
