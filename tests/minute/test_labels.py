"""Counts by labels, filtered counts and bytes, on real Kafka, MySQL and Spark."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tally.app.batches import BatchRequest, batch
from tally.app.migrate import migrate, missing
from tally.config.names import tables_beside
from tally.errors import ConfigError, SchemaError, SeriesFloodError
from tally.ledger.table_changes import MINUTE_INDEX
from tally.ledger.tables import check_prepared
from tally.mysql.transactions import table_names
from tally.pipeline.prune import prune
from tally.pipeline.recount import recount
from tally.pipeline.replay import request_replay, run_replay
from tally.pipeline.replay_plan import preview_replay
from tally.planning.replay_request import BoundsAsked
from tests.world import World, make_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.stack, pytest.mark.spark]

PATTERN = {
    "pattern": r"(?<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?<level>[A-Z]+) \[(?<service>[^\]]*+)\]",
    "time_format": "yyyy-MM-dd HH:mm:ss",
}
AT = "2017-07-30 14:09"
ISO = AT.replace(" ", "T")

Rows = Counter[tuple[str, ...]]


def line(service: str | bytes, level: str = "ERROR", second: int = 8) -> bytes:
    """A line of a service."""
    name = service if isinstance(service, bytes) else service.encode()
    return f"{AT}:{second:02} {level} [".encode() + name + b"] some message"


def labelled(world: World, **keys: object) -> None:
    """Let the pipeline count by service and level."""
    settings = {"line_format": PATTERN, "labels": ["service", "level"], **keys}
    world.configure(**settings)
    migrate(world.database, world.settings)


def migrated_and_planned(world: World) -> None:
    """Give labels their columns, and plan."""
    migrate(world.database, world.settings)
    world.plan()


def replayed(world: World, spark: "SparkSession") -> None:
    """Replay all that Kafka holds."""
    ctx = world.context(spark)
    shown = preview_replay(ctx, world.name, BoundsAsked())
    list(run_replay(ctx, request_replay(ctx, shown, reason="a test").replay_id))


def rows(world: World, *labels: str) -> Rows:
    """The result by labels, all of the one minute."""
    found: Rows = Counter()
    for row in world.rows(f"select * from `{world.name}` where log_time = '{AT}:00'"):
        found[tuple(row[label] for label in labels)] += row["log_count"]
    return found


def test_lines_are_counted_by_labels(world: World, spark: "SparkSession") -> None:
    """A row for each minute, service and level; the audit and a recount agree."""
    labelled(world, levels=["ERROR", "WARN"])
    world.produce([line("cart"), line("cart", "WARN"), line("shop"), line("cart", "INFO")], 0)
    world.produce([line("cart"), line("", "WARN"), b"nothing that is understood"], 1)
    ran = world.minute(spark)
    assert rows(world, "service", "level") == {
        ("cart", "ERROR"): 2,
        ("cart", "WARN"): 1,
        ("shop", "ERROR"): 1,
        ("", "WARN"): 1,
    }
    report = world.audit()
    assert (report.holds, report.minutes, report.matched) == (True, 1, 5)
    found = recount(world.context(spark), world.name, lambda *_: None)
    assert (found.violations, found.unchecked) == ((), ())
    assert ran is not None
    shown = batch(world.context(), BatchRequest(batch_id=ran.batch.batch_id, rows=3))
    assert (shown.minutes_touched, shown.rows_touched, len(shown.minutes)) == (1, 4, 3)


def test_values_that_look_alike_stay_apart(world: World, spark: "SparkSession") -> None:
    """Case, accents, trailing blanks and invalid bytes make other values."""
    labelled(world, labels=["service"])
    names = ["cart", "Cart", "cärt", "cart ", "cart  ", "ca\x00rt", "𝄞"]
    invalid = [b"cart\xff", b"cart\xfe", b"cart\xed\xa0\x80"]
    world.produce([*map(line, names), *map(line, invalid)])
    world.minute(spark)
    expected = Counter([*names, *(name.decode(errors="replace") for name in invalid)])
    assert rows(world, "service") == {(name,): count for name, count in expected.items()}
    assert world.audit().holds


def test_long_values_are_cut_at_code_points(world: World, spark: "SparkSession") -> None:
    """Two that differ behind the cut are one."""
    labelled(world, labels=["service"], label_max_chars=3)
    world.produce([line("äöü1"), line("äöü2"), line("ab")])
    world.minute(spark)
    assert rows(world, "service") == {("äöü",): 2, ("ab",): 1}


def test_a_label_that_is_added_later_is_filled_by_a_replay(
    world: World, spark: "SparkSession"
) -> None:
    """Old minutes have '' until they are replayed; then all is as if counted so from the start."""
    world.configure(line_format=PATTERN)
    world.produce([line("cart"), line("shop"), line("cart")])
    world.minute(spark)
    assert world.counts() == {AT: 3}
    labelled(world)
    assert rows(world, "service", "level") == {("", ""): 3}
    world.produce([line("shop")])
    world.minute(spark)
    assert rows(world, "service", "level") == {("", ""): 3, ("shop", "ERROR"): 1}
    assert world.audit().holds
    replayed(world, spark)
    assert rows(world, "service", "level") == {("cart", "ERROR"): 2, ("shop", "ERROR"): 2}
    assert world.audit().holds


def test_a_label_that_is_taken_out_keeps_its_column(world: World, spark: "SparkSession") -> None:
    """New rows have '' in it; the audit holds over both kinds."""
    labelled(world)
    world.produce([line("cart")])
    world.minute(spark)
    world.configure(labels=["level"])
    world.produce([line("cart")])
    world.minute(spark)
    assert rows(world, "service", "level") == {("cart", "ERROR"): 1, ("", "ERROR"): 1}
    assert world.audit().holds


def test_a_label_without_a_column_counts_nothing(world: World, spark: "SparkSession") -> None:
    """Nothing is planned before the tables have it."""
    world.configure(line_format=PATTERN)
    world.produce([line("cart")])
    world.minute(spark)
    world.configure(labels=["service"])
    with pytest.raises(SchemaError, match="service"):
        world.plan()


def test_columns_are_added_between_batches(world: World, spark: "SparkSession") -> None:
    """An open batch was planned under the old rule."""
    world.configure(line_format=PATTERN)
    world.produce([line("cart")])
    batch = world.plan().batch
    assert batch is not None
    world.configure(labels=["service"])
    with pytest.raises(SchemaError, match=f"batch {batch.batch_id} is open"):
        migrate(world.database, world.settings)
    world.configure(labels=[])
    world.run(batch.batch_id, spark)
    assert world.counts() == {AT: 1}


def test_a_renamed_label_is_refused(world: World) -> None:
    """Its column would keep the values of the old one."""
    labelled(world, labels=["service"])
    world.configure(labels=["level"])
    with pytest.raises(ConfigError, match="service was removed and level added"):
        migrate(world.database, world.settings)


def test_a_refused_migration_changes_no_table_of_any_pipeline(world: World) -> None:
    """One that is refused does not leave half of another one's."""
    labelled(world, labels=["service"])
    world.keys["labels"] = ["level"]
    other = f"{world.name}_b"
    new = {"topics": [world.topic], "labels": ["topic"]}
    settings = make_settings(world.stack, world.config, {other: new, world.name: world.keys})
    with pytest.raises(ConfigError, match="service was removed and level added"):
        migrate(world.database, settings)
    assert not [name for name in table_names(world.database) if name.startswith(other)]


def test_a_flood_of_values_stops_before_anything_is_written(
    world: World, spark: "SparkSession"
) -> None:
    """Raising the limit lets the same batch go on."""
    labelled(world, max_series_per_batch=10)
    world.produce([line(f"s{number}") for number in range(11)])
    batch = world.plan().batch
    assert batch is not None
    with pytest.raises(SeriesFloodError, match="11 rows"):
        world.run(batch.batch_id, spark)
    assert rows(world, "service") == {}
    assert world.rows(f"select * from `{world.name}__segments`") == []
    world.configure(max_series_per_batch=11)
    assert world.run(batch.batch_id, spark).committed
    assert sum(rows(world, "service").values()) == 11


def test_lines_that_match_a_filter_are_counted(world: World, spark: "SparkSession") -> None:
    """By a group, with wild cards, or by a word anywhere; other lines are unmatched."""
    world.configure(
        line_format=PATTERN, levels=[], filter={"service": ["car*", "shop"], "text": ["message"]}
    )
    world.produce([line("cart"), line("car_t"), line("shop", "INFO"), line("xcart"), line("Shop")])
    world.minute(spark)
    assert world.counts() == {AT: 3}
    (segment,) = world.segments()
    assert (segment["matched"], segment["unmatched"]) == (3, 2)


def test_bytes_are_added_up_beside_lines(world: World, spark: "SparkSession") -> None:
    """A metric per topic: how many lines, and how long they are; a replay keeps both right."""
    labelled(world, labels=["topic"], levels=[], measure="bytes")
    lines = [line("cart"), line("shop", "INFO"), line("x" * 100)]
    world.produce(lines)
    world.minute(spark)
    (row,) = world.rows(f"select topic, log_count, log_bytes from `{world.name}`")
    assert row == {"topic": world.topic, "log_count": 3, "log_bytes": sum(map(len, lines))}
    assert world.audit().holds
    world.configure(levels=["INFO"])
    replayed(world, spark)
    (row,) = world.rows(f"select topic, log_count, log_bytes from `{world.name}`")
    assert row == {"topic": world.topic, "log_count": 1, "log_bytes": len(lines[1])}
    assert world.audit().holds


def test_a_replay_may_count_more_lines_of_fewer_bytes(world: World, spark: "SparkSession") -> None:
    """Every row may gain lines and lose bytes, whether it was there before or is new."""
    labelled(world, labels=["topic"], measure="bytes")
    long, short = line("x" * 1000), [line("a", "WARN"), line("b", "WARN")]
    world.produce([long, *short, f"{AT[:-1]}8:00 WARN [c] new".encode()])
    world.minute(spark)
    world.configure(levels=["WARN"])
    replayed(world, spark)
    found = world.rows(f"select log_count, log_bytes from `{world.name}` order by log_time")
    assert found[1] == {"log_count": 2, "log_bytes": sum(map(len, short))}
    assert len(found) == 2
    assert world.audit().holds


def test_a_replay_may_count_as_many_lines_of_other_bytes(
    world: World, spark: "SparkSession"
) -> None:
    """The difference of bytes is added once, in either direction."""
    labelled(world, labels=["topic"], measure="bytes")
    lines = {level: line("cart and more" * len(level), level) for level in ("ERROR", "WARN")}
    world.produce(list(lines.values()), 0)
    world.minute(spark)
    for level in ("WARN", "ERROR"):
        labelled(world, labels=["topic"], measure="bytes", levels=[level])
        replayed(world, spark)
        (row,) = world.rows(f"select log_count, log_bytes from `{world.name}`")
        assert row == {"log_count": 1, "log_bytes": len(lines[level])}
        assert world.audit().holds


def test_columns_of_labels_that_were_taken_out_take_room(
    world: World, spark: "SparkSession"
) -> None:
    """MySQL's keys hold 700 characters of labels; one more is refused before a change."""
    labelled(world, labels=["service"], label_max_chars=700)
    world.produce([line("cart")])
    world.minute(spark)
    labelled(world, labels=[])
    with pytest.raises(ConfigError, match="2 of 701 characters together; 8 and 700 are the most"):
        labelled(world, labels=["level"], label_max_chars=1)
    labelled(world, labels=["service"], label_max_chars=700)
    world.produce([line("cart")])
    world.minute(spark)
    assert rows(world, "service") == {("cart",): 2}


def test_one_label_makes_room_for_another(world: World, spark: "SparkSession") -> None:
    """It is taken out, then the other one is added; also when it was the only one."""
    labelled(world, labels=["service"])
    world.produce([line("cart")])
    world.minute(spark)
    labelled(world, labels=[])
    world.produce([line("shop")])
    world.minute(spark)
    labelled(world, labels=["level"])
    world.produce([line("shop")])
    world.minute(spark)
    assert rows(world, "service", "level") == {("cart", ""): 1, ("", ""): 1, ("", "ERROR"): 1}
    assert world.audit().holds
    assert migrate(world.database, world.settings) == []


def test_a_label_may_be_called_like_a_column_of_the_ledger(
    world: World, spark: "SparkSession"
) -> None:
    """Plan, commit, audit, replay, recount and prune tell them apart."""
    names = ["said", "summed", "incarnation_id", "batch_id", "state", "kind", "records", "rows"]
    world.configure(line_format="json", levels=[], labels=names, measure="bytes")
    migrate(world.database, world.settings)
    fields = ", ".join(f'"{name}": "{name[0]}"' for name in names)
    world.produce([f'{{"time": "{ISO}:00", {fields}}}', f'{{"time": "{ISO}:00"}}'])
    world.minute(spark)
    expected = {tuple(name[0] for name in names): 1, ("",) * len(names): 1}
    assert rows(world, *names) == expected
    replayed(world, spark)
    assert rows(world, *names) == expected
    assert world.audit().holds
    found = recount(world.context(spark), world.name, lambda *_: None)
    assert (found.violations, found.unchecked) == ((), ())
    world.execute(f"update `{world.name}` set log_count = 2 where said = ''")
    assert [v.check for v in world.audit().violations] == ["result"]


def test_a_recount_needs_the_columns_of_all_labels(world: World, spark: "SparkSession") -> None:
    """Without them several rows of Kafka would be one of the ledger."""
    world.configure(line_format=PATTERN)
    world.produce([line("cart"), line("shop")])
    world.minute(spark)
    world.configure(labels=["service"])
    with pytest.raises(SchemaError, match="service"):
        recount(world.context(spark), world.name, lambda *_: None)


def test_bytes_need_tables_of_their_own_first(world: World) -> None:
    """A new pipeline that was not migrated since says so."""
    world.configure(measure="bytes")
    with pytest.raises(SchemaError, match="no tables for its measure yet") as raised:
        world.plan()
    assert raised.value.next_step == "tally migrate"


@pytest.mark.parametrize("after", [[], ["service"]], ids=["plain", "labelled"])
@pytest.mark.parametrize("before", [[], ["level"]], ids=["plain", "labelled"])
def test_a_table_holds_the_counts_of_one_pipeline(
    world: World, spark: "SparkSession", tmp_path: Path, before: list[str], after: list[str]
) -> None:
    """Also when that pipeline is no longer configured, with labels or without."""
    labelled(world, labels=before)
    world.produce([line("cart"), line("shop")])
    world.minute(spark)
    columns = world.rows(f"show columns from `{world.name}`")
    other = replace(world, config=tmp_path / "other.toml", name=f"{world.name}_b", keys={})
    other.configure(line_format=PATTERN, labels=after, result_table=world.name)
    with pytest.raises(ConfigError, match=f"holds the counts of pipeline {world.name}\\b"):
        migrated_and_planned(other)
    assert world.rows(f"show columns from `{world.name}`") == columns
    assert world.rows("select * from pipeline where pipeline = %s", (other.name,)) == []
    assert world.audit().holds


@pytest.mark.parametrize("before", [[], ["level"]], ids=["plain", "labelled"])
def test_a_plan_alone_takes_no_table_of_another_pipeline(
    world: World, spark: "SparkSession", tmp_path: Path, before: list[str]
) -> None:
    """Nobody has run `tally migrate` for the other pipeline."""
    labelled(world, labels=before)
    world.produce([line("cart")])
    world.minute(spark)
    other = replace(world, config=tmp_path / "other.toml", name=f"{world.name}_b", keys={})
    other.configure(line_format=PATTERN, result_table=world.name)
    with pytest.raises(ConfigError, match=f"holds the counts of pipeline {world.name}\\b"):
        other.plan()
    assert world.rows("select * from pipeline where pipeline = %s", (other.name,)) == []


@pytest.mark.parametrize("labels", [[], ["level"]], ids=["plain", "labelled"])
@pytest.mark.parametrize(
    ("columns", "wrong"),
    [
        ("id int primary key, name text", "it has the columns id, name"),
        ("log_time varchar(20) primary key, log_count int", "no table of counts"),
        ("log_time datetime, log_count int", "no table of counts"),
        ("log_time datetime primary key, log_count text", "no table of counts"),
        ("log_time datetime primary key, log_count int, host int not null", "no table of counts"),
        (
            "log_time datetime, log_count int, t datetime default now(), primary key (log_time, t)",
            "has rows that are unique by (log_time, t), not by (log_time)",
        ),
        (
            "log_time datetime, log_count int,t text default (uuid()), primary key (log_time,t(9))",
            "has rows that are unique by (log_time, t(9)), not by (log_time)",
        ),
        (
            "log_time datetime primary key, log_count int unique",
            "has rows that are unique by (log_time) and by (log_count), not by (log_time)",
        ),
        (
            "log_time datetime unique not null, log_count int",
            "has rows that are unique by (log_time)",
        ),
        (
            "log_time datetime primary key, log_count int) engine = MyISAM -- ",
            "is of the engine MyISAM, not of InnoDB",
        ),
    ],
)
def test_an_unrelated_table_is_not_taken(
    world: World, columns: str, wrong: str, labels: list[str]
) -> None:
    """Neither by a migration nor by a plan; the ledger does not know the pipeline afterwards."""
    table = f"{world.name}_t"
    world.execute(f"create table `{table}` ({columns})")
    before = world.rows(f"show create table `{table}`")
    world.configure(line_format=PATTERN, labels=labels, result_table=table)
    world.produce([line("cart")])
    for take in (lambda: migrate(world.database, world.settings), world.plan):
        with pytest.raises((ConfigError, SchemaError)) as raised:
            take()
        assert wrong in raised.value.what or (labels and isinstance(raised.value, SchemaError))
    assert world.rows(f"show create table `{table}`") == before
    assert world.rows("select * from pipeline where pipeline = %s", (world.name,)) == []
    world.execute(f"drop table `{table}`")


def test_a_table_with_rows_of_its_own_is_not_taken(world: World) -> None:
    """The ledger could not say where they come from; an empty one of the right shape is taken."""
    table = f"{world.name}_t"
    world.execute(f"create table `{table}` (log_time datetime primary key, log_count bigint)")
    world.execute(f"insert into `{table}` values ('{AT}:00', 1)")
    world.configure(result_table=table)
    world.produce([line("cart")])
    with pytest.raises(ConfigError, match="has rows that the ledger knows nothing of"):
        migrated_and_planned(world)
    world.execute(f"delete from `{table}`")
    migrated_and_planned(world)
    assert world.rows("select result_table from pipeline where pipeline = %s", (world.name,))


def test_the_audit_adds_up_rows_of_columns_that_it_does_not_know(
    world: World, spark: "SparkSession"
) -> None:
    """Someone has widened the result table: another value of the new column is another row."""
    world.configure(line_format=PATTERN)
    world.produce([line("cart"), line("shop")])
    world.minute(spark)
    world.execute(
        f"alter table `{world.name}` add column x varchar(9) not null default '',"
        " drop primary key, add primary key (log_time, x)"
    )
    assert world.audit().holds
    world.execute(f"insert into `{world.name}` values ('{AT}:00', 1, 'more')")
    assert [v.check for v in world.audit().violations] == ["result"]
    world.execute(f"update `{world.name}` set log_count = 1")
    (violation,) = world.audit().violations
    assert violation.detail == "the table says 2 in 2 rows, segments add up to 2"


@pytest.mark.parametrize(
    ("change", "wrong", "mend"),
    [
        (
            "modify service varchar(200) collate utf8mb4_0900_ai_ci not null default ''",
            "compares service by utf8mb4_0900_ai_ci, not by ",
            (
                "modify service varchar(200) character set utf8mb4 collate utf8mb4_0900_bin"
                " not null default ''"
            ),
        ),
        (
            "drop primary key, add primary key (log_time)",
            "has rows that are unique by (log_time), not by (log_time, service)",
            "drop primary key, add primary key (log_time, service)",
        ),
        (
            "add unique one_a_count (log_count)",
            "has rows that are unique by (log_time, service) and by (log_count), not by",
            "drop index one_a_count",
        ),
    ],
    ids=["collation", "key", "unique"],
)
def test_the_audit_sees_a_table_in_which_counts_would_meet(
    world: World, spark: "SparkSession", change: str, wrong: str, mend: str
) -> None:
    """Someone has changed the result table; so far no row is wrong. The runbook says what mends."""
    labelled(world, labels=["service"])
    world.produce([line("cart")])
    world.minute(spark)
    assert world.audit().holds
    world.execute(f"alter table `{world.name}` {change}")
    (violation,) = world.audit().violations
    assert (violation.check, violation.where) == ("result", f"table {world.name}")
    assert wrong in violation.detail
    world.execute(f"alter table `{world.name}` {mend}")
    assert world.audit().holds


@pytest.mark.parametrize(
    "change",
    [
        "add id bigint not null auto_increment unique",
        "add remark varchar(9) unique",
        (
            "add id int auto_increment, add unique minute (log_time, service),"
            " drop primary key, add primary key (id)"
        ),
    ],
    ids=["numbered", "null", "another primary key"],
)
def test_an_index_in_which_no_counts_meet_is_no_fault(
    world: World, spark: "SparkSession", change: str
) -> None:
    """Tally never states the column, and its rows have a number of their own or none."""
    labelled(world, labels=["service"])
    world.produce([line("cart"), line("shop")])
    world.minute(spark)
    world.execute(f"alter table `{world.name}` {change}")
    world.produce([line("cart"), line("home")])
    world.minute(spark)
    assert rows(world, "service") == {("cart",): 2, ("shop",): 1, ("home",): 1}
    assert world.audit().holds


def test_no_label_is_added_under_an_index_that_joins_its_rows(
    world: World, spark: "SparkSession"
) -> None:
    """The column would be there, and the first minute with two values could not be committed."""
    world.configure(line_format=PATTERN)
    world.produce([line("cart")])
    world.minute(spark)
    world.execute(f"alter table `{world.name}` add unique a_minute (log_time)")
    before = world.rows(f"show create table `{world.name}`")
    with pytest.raises(SchemaError, match=r"its unique index a_minute \(log_time\)") as raised:
        labelled(world, labels=["service"])
    assert world.rows(f"show create table `{world.name}`") == before
    statement, _, _ = raised.value.next_step.partition(";")
    world.execute(statement)
    labelled(world, labels=["service"])
    world.produce([line("cart"), line("shop")])
    world.minute(spark)
    assert rows(world, "service") == {("",): 1, ("cart",): 1, ("shop",): 1}
    assert world.audit().holds


def test_another_result_table_is_refused_before_it_is_made(
    world: World, spark: "SparkSession"
) -> None:
    """A pipeline's counts stay together; status says so, too, and not "migrate"."""
    world.produce([line("cart")])
    world.minute(spark)
    other = f"{world.name}_other"
    world.configure(result_table=other)
    with pytest.raises(ConfigError, match=f"has counted into {world.name} so far"):
        migrate(world.database, world.settings)
    assert not world.rows("show tables like %s", (other,))
    with world.database.transaction(read_only=True) as tx, pytest.raises(ConfigError):
        check_prepared(tx, world.pipeline)


@pytest.mark.parametrize("which", ["", "__segments", "__folded"])
def test_a_missing_table_is_named(world: World, which: str) -> None:
    """Each that the pipeline needs."""
    labelled(world, labels=["service"])
    with world.database.transaction(read_only=True) as tx:
        check_prepared(tx, world.pipeline)
    world.execute(f"drop table `{world.name}{which}`")
    with world.database.transaction(read_only=True) as tx, pytest.raises(SchemaError) as raised:
        check_prepared(tx, world.pipeline)
    assert f"pipeline {world.name} has no table {world.name}{which} yet" in raised.value.what
    assert raised.value.next_step == "tally migrate"


@pytest.mark.parametrize("key", ["log_time", "log_time, service"])
def test_a_label_that_was_there_is_made_exact(
    world: World, spark: "SparkSession", key: str
) -> None:
    """Of an empty table of the right shape, or one that a migration before left so."""
    world.execute(f"drop table if exists `{world.name}`")
    world.execute(
        f"create table `{world.name}` (log_time datetime, log_count bigint not null,"
        " service varchar(200) character set utf8mb4 collate utf8mb4_0900_bin default '',"
        f" primary key ({key}))"
    )
    if "service" not in key:
        world.execute(
            f"alter table `{world.name}` modify service varchar(200) character set utf8mb4"
            " collate utf8mb4_0900_ai_ci not null default ''"
        )
    labelled(world, labels=["service"], label_max_chars=200)
    world.produce([line("cart"), line("CART"), line("Cärt"), line("cart")])
    world.minute(spark)
    assert len(rows(world, "service")) == 3
    assert world.audit().holds


def test_no_unrelated_table_beside_the_result_is_taken(world: World, spark: "SparkSession") -> None:
    """Neither for a new pipeline nor for one that has counted without labels."""
    world.configure(line_format=PATTERN)
    world.produce([line("cart")])
    world.minute(spark)
    table = f"{world.name}__segments"
    world.execute(f"create table `{table}` (segment_id bigint primary key, log_time datetime)")
    before = world.rows(f"show create table `{table}`")
    with pytest.raises(ConfigError, match=f"need a table {table}, which exists and is no table"):
        labelled(world, labels=["service"])
    assert world.rows(f"show create table `{table}`") == before
    world.execute(f"drop table `{table}`")
    labelled(world, labels=["service"])
    assert world.audit().holds


def test_a_replay_may_give_as_many_rows_as_it_replaces(world: World, spark: "SparkSession") -> None:
    """Batches within a minute had the limit each."""
    labelled(world, labels=["service"], max_series_per_batch=2)
    for first in range(0, 8, 2):
        world.produce([line(f"s{first}"), line(f"s{first + 1}")])
        world.minute(spark)
    for _ in range(2):
        replayed(world, spark)
        assert len(rows(world, "service")) == 8
    assert world.audit().holds


def test_folded_rows_keep_their_labels(world: World, spark: "SparkSession") -> None:
    """What Kafka has forgotten stays in the result, label by label."""
    labelled(world)
    world.produce([line("cart"), line("shop")])
    world.minute(spark)
    world.delete_records(0, 2)
    before = rows(world, "service", "level")
    assert prune(world.context(), world.name, timedelta(), lambda *_: None).segments == 1
    assert rows(world, "service", "level") == before
    assert world.rows(f"select * from `{world.name}__segments`") == []
    assert len(world.rows(f"select * from `{world.name}__folded`")) == 2
    assert world.audit().holds


def test_a_preview_names_what_a_later_label_cannot_reach(
    world: World, spark: "SparkSession"
) -> None:
    """The lines of pruned segments keep '', whatever is replayed."""
    labelled(world, labels=["service"])
    world.produce([line("cart")])
    world.minute(spark)
    world.delete_records(0, 1)
    prune(world.context(), world.name, timedelta(), lambda *_: None)
    world.produce([line("shop"), line("cart")])
    world.minute(spark)
    labelled(world, labels=["service", "level"])
    note = preview_replay(world.context(), world.name, BoundsAsked()).notes[-1]
    assert note.startswith("1 minute, ")
    assert "pruned" in note
    replayed(world, spark)
    assert {row["level"] for row in world.rows(f"select level from `{world.name}`")} == {
        "",
        "ERROR",
    }
    assert world.audit().holds


def test_tables_from_before_get_the_index_by_minute(world: World) -> None:
    """A migration makes it where it is missing, and nothing twice."""
    labelled(world)
    migrated_and_planned(world)
    contributions, _ = tables_beside(world.name)
    world.execute(f"alter table `{contributions}` drop key {MINUTE_INDEX}")
    lacking = [f"index {MINUTE_INDEX} of {contributions}"]
    database = world.context().database
    assert missing(database, world.settings) == lacking
    assert migrate(database, world.settings) == lacking
    assert missing(database, world.settings) == []
    found = world.rows(f"show index from `{contributions}` where Key_name = %s", (MINUTE_INDEX,))
    assert [row["Column_name"] for row in found] == ["log_time"]
