"""A ledger that a restore or a lagging replica makes older under a driver: numbers come again."""

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Barrier, Event
from types import SimpleNamespace
from typing import Any

import pytest

from tally.aggregates.counts import CountRequest, Counts
from tally.context import Reader
from tally.errors import FencedError, MySQLUnavailableError
from tally_local.stack.server import Part
from tally_local.stack.stack import Stack
from tests.minute import steps
from tests.minute.deliveries import COUNTED, LINES, delivered
from tests.python_reader import OpenSet, Work

pytestmark = pytest.mark.stack

CLAIMED = "select batch_id, attempt from batch where pipeline = %s and state = 'planned'"


def keep_state(stack: Stack, folder: Path) -> Callable[[], None]:
    """Copy the data of a stopped MySQL server; returns what puts them back."""
    data = stack.layout.home / Part.MYSQL / "data"

    def copied(source: Path, target: Path) -> None:
        stack.down([Part.MYSQL])
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target)
        stack.up([Part.MYSQL])

    copied(data, folder)
    return lambda: copied(folder, data)


def behind(reader: Reader, act: Callable[[], None]) -> Any:
    """A reader; something happens when it has read a batch, before what was read is used."""

    @contextmanager
    def count(request: CountRequest) -> Iterator[Counts]:
        with reader.count(request) as counts:
            act()
            yield counts

    def count_each(requests: Any, work: Work, open_set: OpenSet | None = None) -> Any:
        return reader.count_each(requests, lambda *read: (act(), work(*read))[1], open_set)

    return SimpleNamespace(count=count, count_each=count_each)


def test_whoever_has_read_before_a_restore_commits_nothing(
    own_migrated: Stack, tmp_path: Path
) -> None:
    """The batch with the same number and attempt has other ranges; each line counts once."""
    worlds = []
    for name in ("batch", "partition", "rows", "procedure", "files"):
        (folder := tmp_path / name).mkdir()
        worlds.append(delivered(name, own_migrated, folder, partitions=1))
        worlds[-1].count_lines()
    restore = keep_state(own_migrated, tmp_path / "data")
    have_read, is_restored = Barrier(1 + len(worlds)), Event()

    def wait() -> None:
        have_read.wait(120)
        assert is_restored.wait(240)

    planned = [world.planned_in(0) for world in worlds]
    with ThreadPoolExecutor(len(worlds)) as pool:
        late = [
            pool.submit(world.run_all, ids, behind(world.reader, wait))
            for world, ids in zip(worlds, planned, strict=True)
        ]
        have_read.wait(120)
        before = [world.rows(CLAIMED, [world.name]) for world in worlds]
        restore()
        for world in worlds:
            world.attempt(*world.planned_in(0))
        assert [world.rows(CLAIMED, [world.name]) for world in worlds] == before
        is_restored.set()
        for outcome in late:
            with pytest.raises(FencedError, match="restored to an older state"):
                outcome.result()
    for world in worlds:
        assert world.counts() == COUNTED
        world.run_open()
        assert steps.audited(world) == {minute: 3 * count for minute, count in COUNTED.items()}
        if world.pipeline.rows_view:
            assert len(world.kept()) == 3 * sum(COUNTED.values())


def test_a_commit_is_of_the_batch_the_claim_and_the_ranges_that_were_read(
    migrated: Stack, tmp_path: Path
) -> None:
    """Each is compared by itself: one may be the same after a restore."""
    world = delivered("batch", migrated, tmp_path, partitions=1)
    (batch_id,) = ids = world.planned_in(0)
    for table, changed, back in (
        ("batch", "claim_token = repeat('0', 32)", "claim_token = null"),
        *(("batch", f"planned_at = planned_at {n} interval 1 hour", "reason = ''") for n in "-+"),
        ("segment", "until_offset = until_offset - 1", "until_offset = until_offset + 1"),
    ):

        def change(to: str, table: str = table) -> None:
            world.execute(f"update {table} set {to} where batch_id = {batch_id}")

        with pytest.raises(FencedError, match="restored to an older state"):
            world.run_all(ids, behind(world.reader, partial(change, changed)))
        assert world.counts() == {}
        change(back)
    world.run_all(ids)
    assert steps.audited(world) == COUNTED


@pytest.mark.parametrize("delivery", ["rows", "files"])
def test_a_batch_is_committed_with_a_set_that_is_still_sealed(
    delivery: str, migrated: Stack, tmp_path: Path
) -> None:
    """A replica that lags has a claim, perhaps, and not what was sealed after it."""
    world = delivered(delivery, migrated, tmp_path, partitions=1)
    ids = world.planned_in(0)
    reopened = f"update `{world.pipeline.rows_view}__sets` set state = 'open', line_count = null"
    with pytest.raises(FencedError, match="no longer there with its 3 lines"):
        world.run_all(ids, behind(world.reader, lambda: world.execute(reopened)))
    assert world.counts() == {}
    world.run_all(ids)
    assert steps.audited(world) == COUNTED
    assert len(world.kept()) == sum(COUNTED.values())


def test_a_replica_takes_no_line_away(own_migrated: Stack, migrated: Stack, tmp_path: Path) -> None:
    """It may lag, and does not know of the set that a batch is about to commit."""
    there, here = (tmp_path / name for name in ("there", "here"))
    there.mkdir()
    here.mkdir()
    lines = delivered("batch", migrated, there)
    world = delivered("batch", own_migrated, here, partitions=1)
    world.configure(delivery="rows")
    world.keep_in(lines.new_database(), lines)
    world.migrate()

    def audit_a_replica() -> None:
        world.execute("update batch set attempt = attempt - 1 where state = 'planned'")
        with (
            world.global_variable("read_only", 0),
            world.global_variable("super_read_only", 1),
            pytest.raises(MySQLUnavailableError, match="read-only"),
        ):
            world.delivery.violations()
        world.execute("update batch set attempt = attempt + 1 where state = 'planned'")

    world.run_all(world.planned_in(0), behind(world.reader, audit_a_replica))
    assert steps.audited(world) == COUNTED


def test_a_set_of_lines_never_has_the_number_of_an_earlier_one(
    migrated: Stack, tmp_path: Path
) -> None:
    """Whoever still writes to a set that a restore has taken away writes to no other."""
    kept = delivered("rows", migrated, tmp_path, partitions=1)
    (batch_id,) = kept.planned_in(0)
    lost = kept.begun(batch_id, "lost")
    kept.execute(f"truncate table `{kept.pipeline.rows_view}__sets`")
    kept.execute("update batch set attempt = 0 where pipeline = %s", [kept.name])
    new = kept.begun(batch_id, "new")
    with pytest.raises(FencedError, match="was dropped"):
        lost.seal()
    assert new.seal().lines == 1
    kept.run_all([batch_id])
    assert steps.audited(kept) == COUNTED
    assert len(kept.kept()) == sum(COUNTED.values())


@pytest.mark.parametrize("delivery", ["rows", "files"])
def test_lines_of_a_set_that_a_restored_ledger_does_not_know_are_seen_once(
    delivery: str, migrated: Stack, tmp_path: Path
) -> None:
    """One of a later replay may reach over the offsets at which the older ledger goes on."""
    world = delivered(delivery, migrated, tmp_path, partitions=1)
    world.count_lines()
    until = len(LINES) + 1
    world.execute(f"update `{world.pipeline.rows_view}__sets` set until_offset = {until}")
    world.count_lines()
    ours = [(0, offset) for offset in (4, 5, 7)]
    assert world.kept("partition_id, record_offset") == ours
    (violation,) = world.audit().findings
    assert "readers do not see its set" in violation.detail
    world.replay()
    assert steps.audited(world) == {minute: 2 * count for minute, count in COUNTED.items()}
    assert world.kept("partition_id, record_offset") == [(0, 0), (0, 1), (0, 3), *ours]
