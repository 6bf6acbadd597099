"""Lines whose tables or folder were restored, copied, moved or shared: refused, or told."""

import secrets
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tally.app.migrate import migrate
from tally.deliveries.folder import Folder
from tally.errors import ConfigError, DataLossError, SchemaError
from tally.pipeline.publish import publish
from tests.minute.test_concurrency import adopt
from tests.minute.test_kept_files import listed, viewed
from tests.minute.test_kept_rows import (
    LINES,
    kept,
    lines_of,
    minute,
    new_database,
    replay,
    results_in,
)
from tests.minute.test_prune import pruned
from tests.world import World, make_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tally_local.stack.stack import Stack

pytestmark = [pytest.mark.stack, pytest.mark.spark]

JSON_FORMAT = {"json": {"time": "t", "level": "l"}, "time_format": "yyyy-MM-dd HH:mm:ss"}
PATTERN_FORMAT = {
    "pattern": r"(?<time>\S+ \S+) (?<level>\w+) id=(?<id>[^ ]*)",
    "time_format": "yyyy-MM-dd HH:mm:ss",
}


def made(stack: "Stack", folder: Path, delivery: str, **keys: Any) -> World:
    """A pipeline that keeps its lines, and a topic of one partition."""
    folder.mkdir(exist_ok=True)
    if delivery == "files":
        keys.setdefault("files_url", str(folder / "kept"))
    return World.create(stack, folder, delivery=delivery, **{"partitions": 1, **keys})


@pytest.mark.parametrize("fold", [False, True])
@pytest.mark.parametrize(
    ("delivery", "to"), [("rows", "server"), ("files", "server"), ("files", "folder")]
)
def test_lines_are_not_left_behind_also_when_all_of_them_are_folded(
    fold: bool, delivery: str, to: str, migrated: "Stack", tmp_path: Path, spark: "SparkSession"
) -> None:
    """Kafka no longer has the records: what is kept of them is all there is."""
    world = made(migrated, tmp_path, delivery)
    world.produce(LINES, 0)
    minute(world, spark)
    before = lines_of(world)
    if fold:
        world.delete_records(0, 4)
        assert pruned(world).segments == 1
    written = world.config.read_text()
    if to == "server":
        results_in(world, new_database(world))
    else:
        world.configure(files_url=str(tmp_path / "another"))
    with pytest.raises(ConfigError, match=f"pipeline {world.name} has kept lines"):
        migrate(world.database, world.settings)
    world.config.write_text(written)
    pruned(world)
    assert lines_of(world) == before


@pytest.mark.parametrize("delivery", ["rows", "files"])
def test_a_set_whose_number_was_given_before_is_not_committed(
    delivery: str, migrated: "Stack", tmp_path: Path, spark: "SparkSession"
) -> None:
    """Tables that were restored to an older state count on from there."""
    world = made(migrated, tmp_path, delivery)
    sets = f"{world.pipeline.rows_view}__sets"
    for text in ("2017-07-30 14:08:00 ERROR first", "2017-07-30 14:10:00 ERROR second"):
        world.produce([text], 0)
        minute(world, spark)
    (last,) = world.rows(f"select max(set_id) as n from `{sets}`")
    if delivery == "rows":
        world.execute(f"delete from `{world.name}_rows__kept` where set_id = {last['n']}")
    world.execute(f"delete from `{sets}` where set_id = {last['n']}")
    world.execute(f"alter table `{sets}` auto_increment = {last['n']}")
    assert [v.detail for v in world.audit().violations] == [
        f"readers do not see its set {last['n']}"
    ]
    world.produce(["2017-07-30 14:09:00 ERROR x", "2017-07-30 14:10:00 ERROR y"], 0)
    with pytest.raises(DataLossError, match=f"numbers go on behind {last['n']}"):
        minute(world, spark)
    assert world.counts() == {"2017-07-30 14:08": 1, "2017-07-30 14:10": 1}
    world.execute(f"alter table `{sets}` auto_increment = {last['n'] + 1}")
    minute(world, spark)
    replay(world, spark)
    assert world.audit().holds
    assert len(lines_of(world)) == sum(world.counts().values()) == 4


def test_the_audit_tells_two_segments_of_one_set(
    migrated: "Stack", tmp_path: Path, spark: "SparkSession"
) -> None:
    """Although the lines of one may be as many, and of the same minute, as those of the other."""
    world = made(migrated, tmp_path, "rows")
    for text in ("2017-07-30 14:09:00 ERROR first", "2017-07-30 14:09:30 ERROR second"):
        world.produce([text], 0)
        minute(world, spark)
    first, second = [row["segment_id"] for row in world.segments()]
    world.execute(
        f"update segment set row_set = (select n from (select row_set as n from segment where"
        f" segment_id = {first}) as other) where segment_id = {second}"
    )
    world.execute(f"delete from `{world.name}_rows__sets` where segment_id = {second}")
    found = {v.where.split()[1]: v.detail for v in world.audit().violations}
    assert found.keys() == {str(second)}


def test_pipelines_do_not_share_a_procedure_or_a_folder(migrated: "Stack", tmp_path: Path) -> None:
    """Neither one that both name, nor one that Tally has made for another."""
    procedure = f"keep_{secrets.token_hex(4)}"
    one = made(migrated, tmp_path, "procedure", row_procedure=procedure)
    view = f"{one.name}_b_rows"
    other = {**one.keys, "rows_table": view, "result_table": f"{one.name}_b"}
    settings = make_settings(one.stack, one.config, {one.name: one.keys, f"{one.name}_b": other})
    assert f"the same row_procedure {procedure}" in settings.disabled[f"{one.name}_b"][0]
    settings = make_settings(one.stack, one.config, {f"{one.name}_b": other})
    with pytest.raises(ConfigError, match=f"was made for pipeline {one.name}, ledger"):
        migrate(one.database, settings)
    one.execute(f"drop procedure {procedure}")
    inner = [{**one.keys, "delivery": "files", "files_url": f"{tmp_path}/a{p}"} for p in ("", "/b")]
    for keys, name in zip(inner, ("a", "b"), strict=True):
        del keys["row_procedure"]
        keys["result_table"] = f"{name}_counts"
    settings = make_settings(one.stack, one.config, dict(zip(("one", "two"), inner, strict=True)))
    assert f"the same folder file://{tmp_path}/a in files_url" in settings.disabled["two"][0]


def test_a_folder_with_lines_of_nobody_is_not_taken(
    migrated: "Stack", tmp_path: Path, spark: "SparkSession"
) -> None:
    """It may be the backup of another one: nothing of it is deleted."""
    world = made(migrated, tmp_path, "files")
    world.produce(LINES, 0)
    minute(world, spark)
    shutil.copytree(tmp_path / "kept" / "lines", tmp_path / "backup" / "lines")
    keys = {**world.keys, "files_url": str(tmp_path / "backup")}
    settings = make_settings(world.stack, world.config, {f"{world.name}_b": keys})
    with pytest.raises(ConfigError, match="has files of lines already"):
        migrate(world.database, settings)
    assert len(list((tmp_path / "backup").rglob("*.parquet"))) == 1


@pytest.mark.parametrize("content", [None, b"{"])
def test_a_folder_that_has_lost_its_owners_name_gets_it_again(
    content: bytes | None, migrated: "Stack", tmp_path: Path, spark: "SparkSession"
) -> None:
    """Its files tell whose it is; one without them is refused."""
    world = made(migrated, tmp_path, "files")
    world.produce(LINES, 0)
    minute(world, spark)
    owner = tmp_path / "kept" / "_tally.json"
    before = owner.read_bytes()
    owner.unlink() if content is None else owner.write_bytes(content)
    migrate(world.database, world.settings)
    assert owner.read_bytes() == before
    assert world.audit().holds
    owner.unlink()
    shutil.rmtree(tmp_path / "kept" / "lines")
    with pytest.raises(ConfigError, match=r"neither _tally\.json nor these files"):
        migrate(world.database, world.settings)


def test_a_folder_is_moved_between_batches(
    migrated: "Stack", tmp_path: Path, spark: "SparkSession"
) -> None:
    """What was sealed in the old one would be committed, and its file not be in the new one."""
    world = made(migrated, tmp_path, "files")
    world.produce(LINES, 0)
    assert world.plan().batches
    shutil.copytree(tmp_path / "kept", tmp_path / "moved")
    world.configure(files_url=str(tmp_path / "moved"))
    with pytest.raises(SchemaError, match="is open; the place of its lines changes between"):
        migrate(world.database, world.settings)
    world.configure(files_url=str(tmp_path / "kept"))
    migrate(world.database, world.settings)
    minute(world, spark)
    assert world.audit().holds


def test_the_lines_of_one_pipeline_are_in_no_others_way(
    migrated: "Stack", tmp_path: Path, spark: "SparkSession"
) -> None:
    """A migration goes on to the others, and then tells what is wrong."""
    world = made(migrated, tmp_path, "files")
    world.produce(LINES, 0)
    minute(world, spark)
    shutil.rmtree(tmp_path / "kept")
    other = {"topics": [world.topic], "delivery": "rows"}
    pipelines = {world.name: world.keys, f"{world.name}_z": other}
    settings = make_settings(world.stack, world.config, pipelines)
    with pytest.raises(ConfigError, match="has kept lines in files"):
        migrate(world.database, settings)
    assert world.rows(f"select * from `{world.name}_z_rows`") == []


def test_a_list_that_a_slower_process_has_put_back_is_written_again(
    migrated: "Stack", tmp_path: Path, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the next plan, although nothing has changed since."""
    world = made(migrated, tmp_path, "files")
    world.produce(LINES, 0)
    minute(world, spark)
    older = (tmp_path / "kept" / "_live" / "files.txt").read_bytes()
    world.configure(levels=["INFO"])
    replay(world, spark)
    Folder.put(Folder(pa.fs.LocalFileSystem(), str(tmp_path / "kept")), "_live/files.txt", older)
    assert listed(tmp_path / "kept") != viewed(world)
    world.plan()
    assert listed(tmp_path / "kept") == viewed(world)


@pytest.mark.parametrize("key", [[], ["level"]])
def test_a_topic_that_was_copied_with_its_id_is_told_apart_by_its_cluster(
    key: list[str], migrated: "Stack", tmp_path: Path, spark: "SparkSession"
) -> None:
    """Of lines with a key the view still has one."""
    world = made(migrated, tmp_path, "rows", row_key=key)
    world.produce(["2017-07-30 14:09:08 ERROR a"], 0)
    minute(world, spark)
    (now,) = world.rows("select * from topic_incarnation where pipeline = %s", (world.name,))
    world.execute(
        "update topic_incarnation set cluster_id = 'the old one' where pipeline = %s", (world.name,)
    )
    world.execute(f"update `{world.name}_rows__sets` set cluster_id = 'the old one'")
    assert world.plan().blocks
    adopt(world, now["topic_id"], now["cluster_id"], {0: 0})
    minute(world, spark)
    rows = kept(world, "cluster_id, partition_id, record_offset")
    assert len(rows) == len(set(rows)) == (1 if key else 2)


def said(raw: bytes) -> bytes:
    """A JSON line with an id."""
    return b'{"t": "2017-07-30 14:09:08", "l": "ERROR", "id": ' + raw + b"}"


@pytest.mark.parametrize(
    ("line_format", "lines"),
    [
        (JSON_FORMAT, [said(b'"\xff"'), said(b'"\xfe"')]),
        (JSON_FORMAT, [said(b"3402823669209384634633746074317682114" + d) for d in (b"55", b"54")]),
        (JSON_FORMAT, [said(b"1e400"), said(b"1e401")]),
        (JSON_FORMAT, [said(b"1e-400"), said(b"1e-401")]),
        (
            JSON_FORMAT,
            [said(b"0.10000000000000000555111512312578270211" + d) for d in (b"81", b"82")],
        ),
        (JSON_FORMAT, [said(b'"\\ud800"'), said(b'"\\ud801"')]),
        (JSON_FORMAT, [said(b'"\\ud800x"'), said(b'"?x"')]),
        (
            PATTERN_FORMAT,
            [b"2017-07-30 14:09:08 ERROR id=" + c + b" tail" for c in (b"\xff", b"\xfe")],
        ),
        (
            PATTERN_FORMAT,
            [b"2017-07-30 14:09:08 ERROR id=" + b"k" * 5000 + d for d in (b"1", b"2")],
        ),
    ],
    ids=["utf-8", "integer", "huge", "tiny", "decimal", "halves", "half", "bytes", "head"],
)
def test_values_that_are_not_read_as_they_were_written_hide_no_line(
    line_format: dict[str, Any],
    lines: list[bytes],
    migrated: "Stack",
    tmp_path: Path,
    spark: "SparkSession",
) -> None:
    """Other values may read like them: these lines are shown, rather twice than not at all."""
    keys = {"row_key": ["id"], "line_format": line_format, "max_malformed_ratio": 1.0}
    world = made(migrated, tmp_path, "rows", **keys)
    world.produce(lines, 0)
    minute(world, spark)
    assert len(kept(world, "partition_id, record_offset")) == sum(world.counts().values())
    assert world.audit().holds


@pytest.mark.parametrize("times", [[None], ["2017-07-30 14:09:00"]])
def test_a_file_that_somebody_has_written_is_told(
    times: list[Any], migrated: "Stack", tmp_path: Path, spark: "SparkSession"
) -> None:
    """Whatever is in it; the other segments are audited all the same."""
    world = made(migrated, tmp_path, "files")
    world.produce(LINES, 0)
    minute(world, spark)
    (path,) = (tmp_path / "kept" / "lines").rglob("*.parquet")
    table = pq.read_table(path)
    if times[0] is None:
        column = pa.array([None] * len(table), table.schema.field("log_time").type)
    else:
        column = pa.array(times * len(table))
    at = table.schema.get_field_index("log_time")
    pq.write_table(table.set_column(at, "log_time", column), path)
    (violation,) = world.audit().violations
    assert violation.check == "rows"
    assert "its file lines/" in violation.detail
    publish(world.context(), world.pipeline)
