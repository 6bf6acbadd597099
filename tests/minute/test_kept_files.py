"""Kept lines in Parquet files: what is said in test_kept_rows.py, and what only files have."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from tally.app.migrate import migrate, missing
from tally.errors import ConfigError, FencedError, FilesUnavailableError, SchemaError
from tally.pipeline.publish import publish, store_of
from tally.pipeline.replay import run_or_replan
from tests.minute.test_kept_rows import (
    LINES,
    all_kept,
    begun,
    kept,
    lines_of,
    minute,
    replay,
)
from tests.minute.test_prune import pruned
from tests.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tally_local.stack.stack import Stack

pytestmark = [pytest.mark.stack, pytest.mark.spark]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the files are."""
    return tmp_path / "kept"


@pytest.fixture
def world(migrated: "Stack", tmp_path: Path, folder: Path) -> World:
    """A topic of two partitions, whose error lines are kept in files."""
    return World.create(migrated, tmp_path, delivery="files", files_url=str(folder), partitions=2)


def listed(folder: Path) -> list[str]:
    """The live files by the list beside them."""
    return (folder / "_live/files.txt").read_text().splitlines()


def viewed(world: World) -> list[str]:
    """The live files by the view."""
    return [r["file"] for r in world.rows(f"select file from `{world.name}_files` order by file")]


def test_list_and_view_have_the_same_files_which_spark_reads(
    world: World, folder: Path, spark: "SparkSession"
) -> None:
    """Each file has what the view says of it; a range without lines has no file."""
    world.produce(LINES, 0)
    world.produce(LINES[2:3], 1)
    assert len(minute(world, spark)) == 2
    (file,) = viewed(world)
    assert listed(folder) == [file]
    assert (
        file == f"file://{folder}/lines/{world.topic}/0/{'0' * 20}-{Path(file).stem[21:]}.parquet"
    )
    (of,) = world.rows(f"select * from `{world.name}_files`")
    assert (of["topic"], of["partition_id"], of["line_count"]) == (world.topic, 0, 3)
    read = spark.read.parquet(*listed(folder)).orderBy("record_offset").collect()
    assert [(row.record_offset, bytes(row.value).decode()) for row in read] == [
        (0, LINES[0]),
        (1, LINES[1]),
        (3, LINES[3]),
    ]
    assert {(r.topic, r.topic_id, r.partition_id) for r in read} == {
        (of["topic"], of["topic_id"], 0)
    }
    assert {(r.segment_id, r.batch_id) for r in read} == {(of["segment_id"], of["batch_id"])}
    assert str(read[2].log_time) == "2017-07-30 14:11:00"
    assert world.audit().holds


def test_replaced_files_stay_for_an_hour(world: World, folder: Path, spark: "SparkSession") -> None:
    """A query that has begun reads them to the end; they are no longer live."""
    world.produce(LINES, 0)
    minute(world, spark)
    (old,) = listed(folder)
    world.configure(levels=["INFO"])
    replay(world, spark)
    (new,) = listed(folder)
    assert new != old
    assert lines_of(world) == [(0, 2, LINES[2])]
    assert all_kept(world) == 4
    publish(world.context(), world.pipeline)
    assert pq.read_metadata(old.removeprefix("file://")).num_rows == 3
    world.execute(
        f"update `{world.name}_files__sets` set changed_at = changed_at - interval 61 minute"
        " where state = 'dropped'"
    )
    publish(world.context(), world.pipeline)
    assert all_kept(world) == 1
    assert world.audit().holds


def test_the_list_follows_when_a_driver_is_killed_before_it_is_written(
    world: World, folder: Path, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next plan writes it; the view has shown the new files before."""
    world.produce(LINES, 0)
    with monkeypatch.context() as patch:
        patch.setattr("tally.deliveries.set_store.SetStore.tell", lambda _: None)
        minute(world, spark)
    assert len(viewed(world)) == 1
    assert not (folder / "_live/files.txt").exists()
    assert minute(world, spark) == []
    assert listed(folder) == viewed(world)


def test_an_older_list_does_not_stay(
    world: World, folder: Path, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process has asked for the live files, then another one has replaced a file."""
    from tally.deliveries import folder as folder_module  # noqa: PLC0415

    world.produce(LINES, 0)
    minute(world, spark)
    (folder / "_live/files.txt").unlink()  # so that it is written
    world.configure(levels=["INFO"])
    put, late = folder_module.Folder.put, []

    def replaced_before(self: folder_module.Folder, below: str, content: bytes) -> None:
        if not late:
            late.append(content)
            replay(world, spark)
            assert listed(folder) == viewed(world)
        put(self, below, content)

    with monkeypatch.context() as patch:
        patch.setattr(folder_module.Folder, "put", replaced_before)
        publish(world.context(), world.pipeline)
    assert late[0].decode().splitlines() != viewed(world)
    assert listed(folder) == viewed(world)


def damaged(file: Path) -> None:
    """Take the end of a file away."""
    file.write_bytes(file.read_bytes()[:-20])


def altered(file: Path) -> None:
    """Change a byte in the middle of a file, where the minutes are."""
    group = pq.read_metadata(file).row_group(0)
    column = next(c for c in map(group.column, range(8)) if c.path_in_schema == "log_time")
    end = column.dictionary_page_offset + column.total_compressed_size
    content = bytearray(file.read_bytes())
    content[end - 1] ^= 0xFF
    file.write_bytes(content)


def shortened(file: Path) -> None:
    """Take a line out of a file."""
    pq.write_table(pq.read_table(file).slice(1), file)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (Path.unlink, "3 lines were counted, 0 rows are there"),
        (damaged, "cannot be read"),
        (altered, "cannot be read"),
        (shortened, "3 lines were counted, 2 rows are there"),
    ],
)
def test_the_audit_finds_files_that_are_not_the_lines(
    world: World, spark: "SparkSession", change: Callable[[Path], None], told: str
) -> None:
    """Whatever has become of a file."""
    world.produce(LINES, 0)
    minute(world, spark)
    (file,) = viewed(world)
    change(Path(file.removeprefix("file://")))
    found = world.audit().violations
    assert [v.check for v in found] == ["rows"]
    assert told in found[0].detail


def test_a_file_that_is_lost_before_its_set_is_sealed_is_not_committed(world: World) -> None:
    """As on a disk that only its executor sees."""
    world.produce(LINES, 0)
    (batch,) = world.plan().batches
    lines = begun(world, batch.batch_id, *LINES)
    lines._write()
    shutil.rmtree(Path(world.pipeline.files_url.removeprefix("file://"), "_open"))
    with pytest.raises(Exception, match="of 4 lines 0 were found again"):
        lines.seal()


def test_files_of_no_set_are_deleted_daily_and_others_are_left(
    world: World, folder: Path, spark: "SparkSession"
) -> None:
    """As a writer leaves that wakes behind its set and is killed."""
    world.produce(LINES, 0)
    minute(world, spark)
    (live,) = listed(folder)
    place = folder / "lines" / world.topic / "0"
    orphans = [place / f"{'0' * 20}-999.parquet", folder / "_open" / "998.parquet"]
    foreign = [
        place / "notes.txt",
        folder / "lines" / "x.parquet.bak",
        folder / "1.parquet",
        place / "report-2026.parquet",
        folder / "lines" / "error_log" / "lines" / world.topic / "0" / orphans[0].name,
    ]
    for file in [*orphans, *foreign]:
        file.parent.mkdir(exist_ok=True, parents=True)
        file.write_text("x")
    pruned(world)
    assert [file.exists() for file in orphans] == [False, False]
    assert all(file.exists() for file in foreign)
    assert Path(live.removeprefix("file://")).exists()
    assert world.audit().holds


def test_a_file_is_not_seen_before_it_is_whole(world: World, folder: Path) -> None:
    """Neither where files are nor in the list; what is left of a killed writer is deleted."""
    world.produce(LINES, 0)
    (batch,) = world.plan().batches
    lines = begun(world, batch.batch_id, *LINES)
    lines._write()
    assert len(list((folder / "_open").iterdir())) == 1
    assert not (folder / "lines").exists()
    begun(world, batch.batch_id)  # a newer attempt; the older one is gone
    world.execute(f"update `{world.name}_files__sets` set changed_at = '2020-01-01'")
    publish(world.context(), world.pipeline)
    assert list((folder / "_open").iterdir()) == []


def test_a_folder_of_another_pipeline_is_not_taken(
    world: World, folder: Path, tmp_path: Path
) -> None:
    """Its files would be deleted as orphans."""
    (tmp_path / "other").mkdir()
    with pytest.raises(ConfigError, match=f"folder has files of pipeline {world.name}, ledger"):
        World.create(world.stack, tmp_path / "other", delivery="files", files_url=str(folder))
    (folder / "_tally.json").write_text("nonsense")
    with pytest.raises(SchemaError, match="does not say whose folder it is"):
        world.plan()


def test_an_executor_that_does_not_see_the_folder_writes_nothing(
    world: World, folder: Path
) -> None:
    """A folder of the same name on its own disk does not say whose it is."""
    world.produce(LINES, 0)
    (batch,) = world.plan().batches
    shutil.rmtree(folder)
    with pytest.raises(SchemaError, match=r"has no _tally\.json") as raised:
        begun(world, batch.batch_id, *LINES)
    assert "mount it" in raised.value.next_step
    assert not folder.exists()


def test_files_are_moved_with_their_folder(
    world: World, folder: Path, tmp_path: Path, spark: "SparkSession"
) -> None:
    """A folder without them is refused; with a copy of them the view has the new addresses."""
    world.produce(LINES, 0)
    minute(world, spark)
    moved = tmp_path / "moved"
    world.configure(files_url=str(moved))
    assert missing(world.database, world.settings)
    with pytest.raises(SchemaError):
        world.plan()
    with pytest.raises(ConfigError, match=r"has kept lines in files, and .* has neither _tally"):
        migrate(world.database, world.settings)
    shutil.copytree(folder, moved)
    shutil.rmtree(folder)
    migrate(world.database, world.settings)
    assert len(kept(world)) == 3
    assert minute(world, spark) == []
    assert listed(moved) == viewed(world)
    assert all(file.startswith(f"file://{moved}/") for file in listed(moved))
    assert json.loads((moved / "_tally.json").read_text())["files_of"].startswith("pipeline ")
    assert world.audit().holds


def test_a_file_in_a_folder_that_was_moved_meanwhile_is_not_committed(
    world: World, folder: Path, tmp_path: Path, spark: "SparkSession"
) -> None:
    """Its set would be live in the new folder, and its file in the old one.

    A migration refuses to move it beside an open batch; here the batch is planned just behind that.
    """
    world.produce(LINES, 0)
    (batch,) = world.plan().batches
    lines = begun(world, batch.batch_id, *LINES)
    moved = tmp_path / "moved"
    shutil.copytree(folder, moved)
    world.configure(files_url=str(moved))
    store = store_of(world.context(), world.pipeline)
    assert store is not None
    store.prepare(has_lines=False)
    with pytest.raises(FencedError, match="was changed while they were written"):
        lines.seal()
    run_or_replan(world.context(spark), [batch.batch_id])
    assert len(kept(world)) == 3
    assert world.audit().holds


def test_pruning_with_the_folder_of_another_pipeline_deletes_nothing(
    world: World, tmp_path: Path, spark: "SparkSession"
) -> None:
    """As with a configuration that was copied, and no migration or plan before it."""
    world.produce(LINES, 0)
    minute(world, spark)
    (tmp_path / "other").mkdir()
    other = World.create(
        world.stack, tmp_path / "other", delivery="files", files_url=str(tmp_path / "o")
    )
    other.configure(files_url=world.pipeline.files_url)
    pruned(other)
    assert all_kept(world) == 3
    assert world.audit().holds


def test_a_file_system_that_does_not_answer_is_named(
    world: World, folder: Path, tmp_path: Path, spark: "SparkSession"
) -> None:
    """The batch is counted once it does."""
    world.produce(LINES, 0)
    (batch,) = world.plan().batches
    away = folder.rename(tmp_path / "away")
    folder.write_text("something else")
    with pytest.raises(FilesUnavailableError, match=f"file://{folder}: "):
        begun(world, batch.batch_id, *LINES)
    folder.unlink()
    away.rename(folder)
    minute(world, spark)
    assert len(kept(world)) == 3


def test_the_disk_is_full(
    world: World, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is committed, and the next run counts all."""
    from tally.deliveries import folder as folder_module  # noqa: PLC0415

    world.produce(LINES, 0)
    (batch,) = world.plan().batches
    lines = begun(world, batch.batch_id, *LINES)

    def full(_: str) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(folder_module, "_sync", full)
        with pytest.raises(FilesUnavailableError, match="No space left on device"):
            lines.seal()
    left = list(Path(world.pipeline.files_url.removeprefix("file://")).rglob("*.parquet"))
    assert left == [], "what was written takes no room"
    minute(world, spark)
    assert len(kept(world)) == 3
    assert world.audit().holds
