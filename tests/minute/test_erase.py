"""Text of lines that must go: where it was stored, where it is being stored, and when it is old."""

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from unittest.mock import patch

import pytest

from tally.audit.recount import recount
from tally.counting import commit
from tally.deliveries.file_sets import FileSets
from tally.deliveries.row_sets import RowSets
from tally.deliveries.set_store import SetStore
from tally.deliveries.set_tables import SetPlace
from tally.errors import ConfigError, FilesUnavailableError, SchemaError, UsageError
from tally.maintenance.erase import erase, erase_old, erasures
from tally.model import OffsetRange
from tally.mysql.transactions import Transaction
from tally_local.stack.stack import Stack
from tests.fakes import ManualClock
from tests.minute.deliveries import BAD, LINES, UNPUBLISHED, Delivery, delivered
from tests.waiting import wait_until
from tests.world import LOCK_LIST_S

pytestmark = pytest.mark.stack


@pytest.fixture(params=["rows", "procedure", "files"])
def world(
    migrated: Stack, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Delivery:
    """A topic of two partitions, whose error lines are kept, by each delivery that does so."""
    monkeypatch.setattr("tally.deliveries.file_sets.FileSets.kept_s", 0)
    world = delivered(request.param, migrated, tmp_path, partitions=2)
    world.configure(max_malformed_ratio=1)
    return world


def offsets_of(world: Delivery, first: int, until: int, partition: int = 0) -> OffsetRange:
    return OffsetRange(partition=world.partition(partition), from_offset=first, until_offset=until)


def with_text(world: Delivery) -> set[tuple[int, int]]:
    """Partition and offset of every line and dead letter that has its text."""
    kept = world.kept("partition_id, record_offset, value")
    letters = [(d["partition_id"], d["record_offset"], d["value"]) for d in world.dead_letters()]
    return {(partition, offset) for partition, offset, value in [*kept, *letters] if value}


KINDS: dict[str, type[SetStore]] = {"rows": RowSets, "procedure": RowSets, "files": FileSets}
TEXTS = {(p, offset) for p in (0, 1) for offset in (0, 1, 3, 4, 5, 7)}
"""Those of the lines and the bad lines, in both partitions."""


def count_all(world: Delivery) -> None:
    for partition in (0, 1):
        world.produce([*LINES, *BAD], partition)
    assert len(world.run_open()) == 2
    assert with_text(world) == TEXTS


def holds(world: Delivery) -> bool:
    """Whether the counts are proved, by the ledger and by what Kafka has."""
    _, wrong = recount(world.context(world.reader), world.name, lambda *_: None)
    return not wrong and world.audit().holds


def test_what_is_erased_stays_away_and_the_counts_stay_proved(world: Delivery) -> None:
    """Also after a replay, which reads it again; a dry run changes nothing."""
    world.migrate()
    count_all(world)
    counts, letters = world.counts(), len(world.dead_letters())
    erased = offsets_of(world, 1, 6)
    dry = erase(world.context(), world.name, erased, reason="ticket 17", dry_run=True)
    assert (dry.dead_letters, dry.lines) == (2, 2)
    assert with_text(world) == TEXTS
    assert erasures(world.context(), world.name).erasures == ()
    done = erase(world.context(), world.name, erased, reason="ticket 17")
    assert (done.dead_letters, done.lines) == (2, 2)
    left = TEXTS - {(0, offset) for offset in range(1, 6)}
    assert with_text(world) == left
    (of,) = erasures(world.context(), world.name).erasures
    assert (of.range, of.reason) == (erased, "ticket 17")
    assert (world.counts(), len(world.dead_letters())) == (counts, letters)
    assert len(world.kept()) == 6
    assert holds(world)
    with pytest.raises(UsageError, match="has never read"):
        erase(world.context(), world.name, offsets_of(world, 0, 1, partition=9), reason="ticket 17")
    again = erase(world.context(), world.name, erased, reason="ticket 17")
    assert (again.dead_letters, again.lines) == (0, 0)
    assert all(ran.committed for ran in world.replay())
    assert with_text(world) == left
    assert (world.counts(), len(world.dead_letters()), len(world.kept())) == (counts, letters, 6)
    assert holds(world)


def test_a_batch_that_is_on_its_way_stores_no_erased_text(world: Delivery) -> None:
    """Its set is open or sealed when the line is erased, and is shown afterwards."""
    world.migrate()
    (sealed,) = world.planned_in(0)
    with UNPUBLISHED:
        world.run_all([sealed])
    assert world.kept() == []
    (begun,) = world.planned_in(1)
    writer = world.begun(begun, LINES[0], LINES[1])
    for partition in (0, 1):
        erase(world.context(), world.name, offsets_of(world, 0, 1, partition), reason="ticket 17")
    writer.seal()
    world.run_all([begun])
    wait_until(lambda: len(world.kept()) == 6)
    assert with_text(world) == {(p, offset) for p in (0, 1) for offset in (1, 3)}
    assert holds(world)


@pytest.mark.parametrize("world", ["rows"], indirect=True)
def test_erasing_waits_for_a_batch_that_is_being_committed(world: Delivery) -> None:
    """It has asked what was erased before that was recorded; neither is rolled back."""
    world.migrate()
    world.produce([*LINES, *BAD], 0)
    (batch_id,) = world.planned_in()
    committing, asked = Event(), Event()
    asks = commit.erase_letters_of

    def ask(tx: Transaction, batch: int) -> None:
        asks(tx, batch)
        committing.set()
        assert asked.wait(60)

    with patch.object(commit, "erase_letters_of", ask), ThreadPoolExecutor() as pool:
        counted = pool.submit(world.run_all, [batch_id])
        assert committing.wait(60)
        erased = pool.submit(
            erase, world.context(), world.name, offsets_of(world, 0, 8), reason="ticket 17"
        )
        wait_until(lambda: world.waiting_statements() != [], pause_s=LOCK_LIST_S)
        asked.set()
        assert [ran.committed for ran in counted.result()] == [True]
        assert erased.result().dead_letters == 3
    assert with_text(world) == set()
    assert holds(world)


@pytest.mark.parametrize("world", ["files"], indirect=True)
@pytest.mark.parametrize("step", ["swap_files", "inform_readers"])
def test_an_erasure_that_is_killed_leaves_whole_files(world: Delivery, step: str) -> None:
    """Readers see the old file or the new one; the other goes, and the next call ends the work."""
    world.migrate()
    count_all(world)
    erased = offsets_of(world, 0, 1)
    killed = patch.object(FileSets, step, side_effect=KeyboardInterrupt)
    with killed, pytest.raises(KeyboardInterrupt):
        erase(world.context(), world.name, erased, reason="ticket 17")
    left = TEXTS - {(0, 0)}
    if step == "swap_files":
        lines = {(partition, offset) for partition, offset, value in world.kept() if value}
        assert (0, 0) in lines
    world.delivery.show()
    assert len(world.kept()) == world.all_kept() == 6
    erase(world.context(), world.name, erased, reason="ticket 17")
    assert with_text(world) == left
    assert world.all_kept() == 6
    assert holds(world)


def test_tables_of_an_older_release_get_what_erasing_needs(world: Delivery) -> None:
    """Their comment says how they were made, so that `tally migrate` is asked for."""
    world.migrate()
    count_all(world)
    sets = f"{world.pipeline.rows_view}__sets"
    (made,) = world.rows(
        "select table_comment as comment from information_schema.tables where table_name = %s",
        (sets,),
    )
    older = re.sub(r"view (\d)", lambda found: f"view {int(found[1]) - 1}", made["comment"])
    assert older != made["comment"]
    world.execute(f"alter table `{sets}` drop column is_erased, drop column file_id")
    world.execute(f"alter table `{sets}` comment = '{older}'")
    with pytest.raises(SchemaError, match="is to be made again"):
        erase(world.context(), world.name, offsets_of(world, 0, 1), reason="ticket 17")
    world.migrate()
    assert (
        erase(world.context(), world.name, offsets_of(world, 0, 1), reason="ticket 17").lines == 1
    )
    erase_old(world.context(), world.name, timedelta(0))
    assert with_text(world) == set()
    assert holds(world)


def test_a_longer_time_limit_later_makes_no_finding(world: Delivery) -> None:
    """What has lost its text by a shorter one is still known to have lost it."""
    world.migrate()
    count_all(world)
    erase_old(world.context(), world.name, timedelta(0))
    erase_old(world.context(), world.name, timedelta(days=365))
    assert holds(world)


def test_each_of_several_erasures_holds(world: Delivery) -> None:
    """Of one set, also where another one erases at the same time, and after a replay."""
    world.migrate()
    count_all(world)
    kind = KINDS[world.pipeline.delivery]
    erases = kind.erase

    def beaten(store: SetStore, place: SetPlace, *offsets: int, **how: bool) -> int:
        with patch.object(kind, "erase", erases):
            erase(world.context(), world.name, offsets_of(world, 0, 1), reason="ticket 17")
        return erases(store, place, *offsets, **how)

    with patch.object(kind, "erase", beaten):
        erase(world.context(), world.name, offsets_of(world, 3, 4), reason="ticket 18")
    left = TEXTS - {(0, 0), (0, 3)}
    assert with_text(world) == left
    world.replay()
    assert with_text(world) == left
    assert world.all_kept() == 6
    assert holds(world)


@pytest.mark.parametrize("world", ["files"], indirect=True)
def test_what_cannot_be_erased_is_an_error_and_holds_up_nothing_else(world: Delivery) -> None:
    """A file that is missing, and one that is damaged before it is shown."""
    world.migrate()
    count_all(world)
    moved = world.folder.with_name("moved")
    (world.folder / "lines").rename(moved)
    with pytest.raises(FilesUnavailableError, match="is missing"):
        erase(world.context(), world.name, offsets_of(world, 0, 1), reason="ticket 17")
    with pytest.raises(FilesUnavailableError, match="is missing"):
        erase_old(world.context(), world.name, timedelta(0))
    moved.rename(world.folder / "lines")
    erase_old(world.context(), world.name, timedelta(0))
    assert with_text(world) == set()
    before = set((world.folder / "lines").rglob("*.parquet"))
    with UNPUBLISHED:
        world.count_lines(0)
    (new,) = set((world.folder / "lines").rglob("*.parquet")) - before
    new.write_bytes(b"garbage")
    with pytest.raises(FilesUnavailableError):
        erase(world.context(), world.name, offsets_of(world, 8, 9), reason="ticket 17")
    assert [ran.committed for ran in world.count_lines(1)] == [True]
    assert {"rows"} == {violation.check for violation in world.audit().findings}


@pytest.mark.parametrize("world", ["rows"], indirect=True)
def test_lines_that_are_no_longer_kept_are_not_forgotten(world: Delivery) -> None:
    world.migrate()
    count_all(world)
    world.configure(delivery="partition")
    with pytest.raises(ConfigError, match="has kept its lines in"):
        erase(world.context(), world.name, offsets_of(world, 0, 1), reason="ticket 17")
    with pytest.raises(ConfigError, match="has kept its lines in"):
        erase_old(world.context(), world.name, timedelta(0))


@pytest.mark.parametrize("world", ["rows"], indirect=True)
def test_a_clock_that_was_ahead_leaves_nothing(world: Delivery) -> None:
    world.migrate()
    count_all(world)
    ahead = ManualClock(datetime.now(UTC) + timedelta(days=60))
    early = world.through(database=replace(world.database, clock=ahead))
    assert erase_old(early.context(), world.name, timedelta(days=30)) == 6
    world.produce(BAD, 0)
    world.run_open()
    ahead.sleep(timedelta(days=365).total_seconds())
    assert erase_old(early.context(), world.name, timedelta(days=30)) == 3
    assert holds(world)


def test_what_was_kept_long_enough_loses_its_text(world: Delivery) -> None:
    """What is counted after that keeps its own; the counts stay proved."""
    world.migrate()
    count_all(world)
    assert erase_old(world.context(), world.name, timedelta(days=1)) == 0
    assert with_text(world) == TEXTS
    assert erase_old(world.context(), world.name, timedelta(0)) == 6
    assert with_text(world) == set()
    assert len(world.kept()) == 6
    world.count_lines()
    assert with_text(world) == {(0, 8), (0, 9), (0, 11)}
    assert holds(world)
