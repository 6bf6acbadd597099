"""Kept lines in Parquet files: what is said in test_kept_rows.py, and what only files have."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tally.deliveries.folder import Folder, opened
from tally.errors import ConfigError, DataLossError, FencedError, FilesUnavailableError, SchemaError
from tally.set_up.migrate import migrate, missing
from tally_local.stack.stack import Stack
from tests.minute.deliveries import LINES, Delivery, delivered
from tests.minute.test_prune import pruned
from tests.world import make_settings

pytestmark = pytest.mark.stack


@pytest.fixture
def world(migrated: Stack, tmp_path: Path) -> Delivery:
    return delivered("files", migrated, tmp_path, partitions=2)


def viewed(world: Delivery) -> list[str]:
    return [r["file"] for r in world.rows(f"select file from `{world.name}_files` order by file")]


def test_list_and_view_have_the_same_files(world: Delivery) -> None:
    world.produce(LINES[2:3], 1)
    assert len(world.count_lines()) == 2
    (file,) = viewed(world)
    assert world.listed() == [file]
    name = f"{'0' * 20}-{Path(file).stem[21:]}.parquet"
    assert file == f"file://{world.folder}/lines/{world.topic}/0/{name}"
    (of,) = world.rows(f"select * from `{world.name}_files`")
    assert (of["topic"], of["partition_id"], of["line_count"]) == (world.topic, 0, 3)
    rows = pq.read_table(file.removeprefix("file://")).to_pylist()
    for column in ("topic", "topic_id", "partition_id", "segment_id", "batch_id"):
        assert {row[column] for row in rows} == {of[column]}
    assert str(rows[2]["log_time"]) == "2017-07-30 14:11:00"
    assert world.audit().holds


def test_the_list_follows_when_a_driver_is_killed_before_it_is_written(world: Delivery) -> None:
    """The next plan writes it, also where a slower process has put an older one back."""
    with patch("tally.deliveries.file_sets.FileSets.inform_readers"):
        world.count_lines()
    assert len(viewed(world)) == 1, "the view has shown the new files before"
    file = world.folder / "_live/files.txt"
    assert not file.exists()
    assert world.run_open() == []
    assert world.listed() == viewed(world)
    older = file.read_bytes()
    world.replay(levels=["INFO"])
    with opened(f"file://{world.folder}") as folder:
        folder.put("_live/files.txt", older)
    assert world.listed() != viewed(world)
    world.plan()
    assert world.listed() == viewed(world)


def test_an_older_list_does_not_stay(world: Delivery) -> None:
    """One process has asked for the live files, then another one has replaced a file."""
    world.count_lines()
    (world.folder / "_live/files.txt").unlink()  # so that it is written
    put, late = Folder.put, []

    def replaced_before(self: Folder, below: str, content: bytes) -> None:
        if not late:
            late.append(content)
            world.replay(levels=["INFO"])
            assert world.listed() == viewed(world)
        put(self, below, content)

    with patch.object(Folder, "put", replaced_before):
        world.delivery.show()
    assert late[0].decode().splitlines() != viewed(world)
    assert world.listed() == viewed(world)


def test_replaced_files_stay_for_an_hour(world: Delivery) -> None:
    """A query that has begun reads them to the end; they are no longer live."""
    world.count_lines()
    (old,) = world.listed()
    world.replay(levels=["INFO"])
    (new,) = world.listed()
    assert new != old
    assert world.kept_lines() == [(0, 2, LINES[2])]
    world.delivery.show()
    assert world.all_kept() == 4
    assert pq.read_metadata(old.removeprefix("file://")).num_rows == 3
    world.execute(
        f"update `{world.name}_files__sets` set changed_at = changed_at - interval 61 minute"
        " where state = 'dropped'"
    )
    world.delivery.show()
    assert world.all_kept() == 1
    assert world.audit().holds


def damaged(file: Path) -> None:
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
    pq.write_table(pq.read_table(file).slice(1), file)


def retimed(times: list[str | None], file: Path) -> None:
    table = pq.read_table(file)
    at = table.schema.get_field_index("log_time")
    kind = pa.string() if times[0] else table.schema.field(at).type
    pq.write_table(table.set_column(at, "log_time", pa.array(times, kind)), file)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (Path.unlink, "3 lines were counted, 0 rows are there"),
        (damaged, "cannot be read"),
        (altered, "cannot be read"),
        (shortened, "3 lines were counted, 2 rows are there"),
        (partial(retimed, [None] * 3), "its file lines/"),
        (partial(retimed, ["2017-07-30 14:09:00"] * 3), "its file lines/"),
    ],
)
def test_the_audit_finds_files_that_are_not_the_lines(
    world: Delivery, change: Callable[[Path], None], told: str
) -> None:
    world.count_lines()
    (file,) = viewed(world)
    change(Path(file.removeprefix("file://")))
    (found,) = world.audit().findings
    assert found.check == "rows"
    assert told in found.detail
    world.delivery.show()


def test_files_of_no_set_are_deleted_daily_and_others_are_left(world: Delivery) -> None:
    """As a writer leaves that wakes behind its set and is killed."""
    world.count_lines()
    (live,) = world.listed()
    place = world.folder / "lines" / world.topic / "0"
    orphans = [place / f"{'0' * 20}-999.parquet", world.folder / "_open" / "998.parquet"]
    foreign = [
        place / "notes.txt",
        world.folder / "lines" / "x.parquet.bak",
        world.folder / "1.parquet",
        place / "report-2026.parquet",
        world.folder / "lines" / "error_log" / "lines" / world.topic / "0" / orphans[0].name,
    ]
    for file in [*orphans, *foreign]:
        file.parent.mkdir(exist_ok=True, parents=True)
        file.write_text("x")
    pruned(world)
    assert [file.exists() for file in orphans] == [False, False]
    assert all(file.exists() for file in foreign)
    assert Path(live.removeprefix("file://")).exists()
    assert world.audit().holds


def test_no_file_is_deleted_while_the_table_of_sets_is_older_than_the_ledger(
    world: Delivery, caplog: pytest.LogCaptureFixture
) -> None:
    """It was restored alone: what it does not know are counted lines, which may come back."""
    world.count_lines()
    (first,) = world.listed()
    world.count_lines()
    (second,) = set(world.listed()) - {first}
    rows = world.rows(f"select * from `{world.name}_files__sets`")
    later = max(row["segment_id"] for row in rows)
    world.execute(f"delete from `{world.name}_files__sets` where segment_id = %s", (later,))
    pruned(world)
    assert [Path(file.removeprefix("file://")).exists() for file in (first, second)] == [True, True]
    (warned,) = [r for r in caplog.records if r.msg == "orphans_not_deleted"]
    assert f"lacks 1 set of live segments of {world.name}" in warned.__dict__["cause"]
    assert [f.check for f in world.audit().findings] == ["rows"]
    world.replay()
    pruned(world)
    assert not Path(second.removeprefix("file://")).exists()
    assert world.audit().holds


def test_a_file_is_not_seen_before_it_is_whole(world: Delivery) -> None:
    """Neither where files are nor in the list; what is left of a killed writer is deleted."""
    (batch_id,) = world.planned_in(0)
    lost, left = world.begun(batch_id, *LINES), world.folder / "_open"
    lost._flush()
    assert len(list(left.iterdir())) == 1
    assert not (world.folder / "lines").exists()
    shutil.rmtree(left)  # as of a disk that only its executor sees
    with pytest.raises(DataLossError, match="of 4 lines 0 were found again"):
        lost.seal()
    world.begun(batch_id, *LINES)._flush()
    world.begun(batch_id)  # a newer attempt; the older one is gone
    world.execute(f"update `{world.name}_files__sets` set changed_at = '2020-01-01'")
    world.delivery.show()
    assert list(left.iterdir()) == []


def test_an_executor_that_does_not_see_the_folder_writes_nothing(world: Delivery) -> None:
    """A folder of the same name on its own disk does not say whose it is."""
    (batch_id,) = world.planned_in(0)
    shutil.rmtree(world.folder)
    with pytest.raises(SchemaError, match=r"has no _tally\.json") as raised:
        world.begun(batch_id, *LINES)
    assert "mount it" in raised.value.next_step
    assert not world.folder.exists()


def test_a_file_system_that_does_not_answer_is_named(world: Delivery, tmp_path: Path) -> None:
    (batch_id,) = world.planned_in(0)
    away = world.folder.rename(tmp_path / "away")
    world.folder.write_text("something else")
    with pytest.raises(FilesUnavailableError, match=f"file://{world.folder}: "):
        world.begun(batch_id, *LINES)
    world.folder.unlink()
    away.rename(world.folder)
    world.run_open()
    assert len(world.kept()) == 3


def test_the_disk_is_full(world: Delivery) -> None:
    lines = world.begun(*world.planned_in(0), *LINES)
    full = patch("tally.deliveries.folder._sync", side_effect=OSError(28, "No space left"))
    with full, pytest.raises(FilesUnavailableError, match="No space left"):
        lines.seal()
    assert list(world.folder.rglob("*.parquet")) == [], "what was written takes no room"
    world.run_open()
    assert len(world.kept()) == 3
    assert world.audit().holds


def test_files_are_moved_with_their_folder(world: Delivery, tmp_path: Path) -> None:
    """A folder without them is refused; with a copy of them the view has the new addresses."""
    world.count_lines()
    moved = tmp_path / "moved"
    world.configure(files_url=str(moved))
    assert missing(world.database, world.settings)
    with pytest.raises(SchemaError):
        world.plan()
    with pytest.raises(ConfigError, match=r"has kept lines in files, and .* has neither _tally"):
        world.migrate()
    (tmp_path / "kept").rename(moved)
    world.migrate()
    assert len(world.kept()) == 3
    assert world.run_open() == []
    assert world.listed() == viewed(world)
    assert all(file.startswith(f"file://{moved}/") for file in world.listed())
    assert json.loads((moved / "_tally.json").read_text())["files_of"].startswith("pipeline ")
    assert world.audit().holds


def test_a_file_in_a_folder_that_was_moved_meanwhile_is_not_committed(
    world: Delivery, tmp_path: Path
) -> None:
    """Its set would be live in the new folder, and its file in the old one.

    A migration refuses to move it beside an open batch; here one is planned just behind that.
    """
    (batch_id,) = world.planned_in(0)
    lines = world.begun(batch_id, *LINES)
    shutil.copytree(world.folder, tmp_path / "moved")
    world.configure(files_url=str(tmp_path / "moved"))
    with pytest.raises(
        SchemaError, match=f"1 open batch: {batch_id}; the place of its lines changes between"
    ):
        world.migrate()
    store = world.delivery.store
    store.prepare(has_lines=False)
    with pytest.raises(FencedError, match="was changed while they were written"):
        lines.seal()
    world.run_all([batch_id])
    assert len(world.kept()) == 3
    assert world.audit().holds


def test_a_folder_of_another_pipeline_is_not_taken(
    world: Delivery, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Its files would be deleted as orphans; nor one with lines of nobody, as of a backup."""
    world.count_lines()
    other = tmp_path_factory.mktemp("other")
    with pytest.raises(ConfigError, match=f"folder has files of pipeline {world.name}, ledger"):
        Delivery.create(world.stack, other, delivery="files", files_url=str(world.folder))
    backup = tmp_path / "backup"
    shutil.copytree(world.folder / "lines", backup / "lines")
    with pytest.raises(ConfigError, match="has files of lines already"):
        Delivery.create(world.stack, other, delivery="files", files_url=str(backup))
    assert len(list(backup.rglob("*.parquet"))) == 1
    (world.folder / "_tally.json").write_text("nonsense")
    with pytest.raises(SchemaError, match="does not say whose folder it is"):
        world.plan()


def test_pruning_with_the_folder_of_another_pipeline_deletes_nothing(
    world: Delivery, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """As with a configuration that was copied, and no migration or plan before it."""
    world.count_lines()
    second = delivered("files", world.stack, tmp_path_factory.mktemp("other"))
    second.configure(files_url=world.pipeline.files_url)
    pruned(second)
    assert world.all_kept() == 3
    assert world.audit().holds


@pytest.mark.parametrize("content", [None, b"{"])
def test_a_folder_gets_its_owners_lost_name_again(content: bytes | None, world: Delivery) -> None:
    """Its files tell whose it is; one without them is refused, and in no other pipeline's way."""
    world.count_lines()
    owner = world.folder / "_tally.json"
    before = owner.read_bytes()
    owner.unlink() if content is None else owner.write_bytes(content)
    world.migrate()
    assert owner.read_bytes() == before
    assert world.audit().holds
    owner.unlink()
    shutil.rmtree(world.folder / "lines")
    beside = {f"{world.name}_z": {"topics": [world.topic], "delivery": "rows"}}
    settings = make_settings(world.stack, world.config, {world.name: world.keys, **beside})
    with pytest.raises(ConfigError, match=r"neither _tally\.json nor these files"):
        migrate(world.database, settings)
    assert world.rows(f"select * from `{world.name}_z_rows`") == []
