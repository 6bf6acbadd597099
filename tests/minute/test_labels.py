"""Counts by labels and bytes, and the tables that hold them, on real Kafka and MySQL."""

import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from tally.audit.recount import recount
from tally.config.names import tables_beside
from tally.errors import ConfigError, SchemaError, SeriesFloodError
from tally.ledger.table_changes import MINUTE_INDEX
from tally.ledger.tables import check_tables, tables_of
from tally.maintenance.decisions import abandon
from tally.planning.replay_request import MinutesAsked
from tally.reading.batches import batch
from tally.reading.counts import counts
from tally.reading.minutes import minute, minutes
from tally.set_up.migrate import migrate, missing
from tests.minute.steps import AT
from tests.minute.test_prune import pruned
from tests.minute.test_replay import preview, replay
from tests.servers import PROJECT
from tests.waiting import wait_until
from tests.world import World, make_settings

pytestmark = pytest.mark.stack

PATTERN = {
    "pattern": r"(?<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?<level>[A-Z]+) \[(?<service>[^\]]*+)\]",
    "time_format": "yyyy-MM-dd HH:mm:ss",
}
ISO = AT.replace(" ", "T")

Rows = Counter[tuple[str, ...]]


def line(service: str | bytes, level: str = "ERROR", second: int = 8) -> bytes:
    name = service if isinstance(service, bytes) else service.encode()
    return f"{AT}:{second:02} {level} [".encode() + name + b"] some message"


def labelled(world: World, **keys: object) -> None:
    """Let the pipeline count by service, or as the keys say."""
    world.migrate(**{"line_format": PATTERN, "labels": ["service"], **keys})


def count(world: World, *lines: str | bytes) -> None:
    world.produce([line(said) if isinstance(said, str) else said for said in lines])
    assert world.minute() is not None


def rows(world: World, *labels: str) -> Rows:
    found: Rows = Counter()
    for row in world.rows(f"select * from `{world.name}` where log_time = '{AT}:00'"):
        found[tuple(row[label] for label in labels)] += row["log_count"]
    return found


def unknown(world: World) -> bool:
    return not world.rows("select * from pipeline where pipeline = %s", (world.name,))


def test_values_that_look_alike_stay_apart(world: World) -> None:
    labelled(world)
    names = ["cart", "Cart", "cärt", "cart ", "cart  ", "ca\x00rt", "𝄞"]
    invalid = [b"cart\xff", b"cart\xfe", b"cart\xed\xa0\x80"]
    count(world, *names, *map(line, invalid))
    expected = Counter([*names, *(name.decode(errors="replace") for name in invalid)])
    assert rows(world, "service") == {(name,): number for name, number in expected.items()}
    assert world.audit().holds


def test_a_migration_waits_for_a_reader_and_holds_up_no_other(world: World) -> None:
    """Its statements wait for a table's metadata a short while, and again."""
    world.configure(line_format=PATTERN, labels=["service"])
    with ThreadPoolExecutor(1) as pool, closing(world.connect()) as reader:
        reader.begin()
        reader.cursor().execute("select * from segment limit 1")
        migrated = pool.submit(world.migrate)
        waits = "select 1 from information_schema.processlist where info like %s and state like %s"
        like = [f"alter table `{world.name}%", "%metadata lock%"]
        wait_until(lambda: world.rows(waits, like))
        world.rows("select * from segment limit 1")
        reader.rollback()
        migrated.result()
    count(world, "cart")
    assert rows(world, "service") == {("cart",): 1}


def test_a_label_that_is_added_later_is_filled_by_a_replay(world: World) -> None:
    """Old minutes have '' until they are replayed; then all is as if counted so from the start.

    Its column is added between batches: an open one was planned under the old rule.
    """
    world.configure(line_format=PATTERN)
    batch_id = world.planned([line("cart"), line("shop"), line("cart")]).batch_id
    with pytest.raises(SchemaError, match=f"1 open batch: {batch_id}"):
        labelled(world)
    world.configure(labels=[])
    assert world.run(batch_id).committed
    assert world.counts() == {AT: 3}
    labelled(world, labels=["service", "level"])
    assert rows(world, "service", "level") == {("", ""): 3}
    count(world, "shop")
    assert rows(world, "service", "level") == {("", ""): 3, ("shop", "ERROR"): 1}
    assert world.audit().holds
    replay(world)
    assert rows(world, "service", "level") == {("cart", "ERROR"): 2, ("shop", "ERROR"): 2}
    assert world.audit().holds


def test_a_label_without_a_column_is_neither_planned_nor_recounted(world: World) -> None:
    """Without it several rows of Kafka would be one of the ledger; bytes need tables, too."""
    world.configure(line_format=PATTERN)
    count(world, "cart", "shop")
    world.configure(labels=["service"])
    with pytest.raises(SchemaError, match="has no column service"):
        world.plan()
    with pytest.raises(SchemaError, match="service"):
        recount(world.context(world.reader), world.name, lambda *_: None)
    world.configure(labels=[], measure="bytes")
    with pytest.raises(SchemaError, match="no tables for its measure yet") as raised:
        world.plan()
    assert raised.value.next_step == "tally migrate"


def test_a_renamed_label_is_refused_and_holds_up_no_other_pipeline(world: World) -> None:
    """Its column would keep the values of the old one."""
    labelled(world)
    before = world.rows(f"show create table `{world.name}`")
    world.keys["labels"] = ["level"]
    other = f"{world.name}_b"
    new = {"topics": [world.topic], "labels": ["topic"]}
    settings = make_settings(world.stack, world.config, {other: new, world.name: world.keys})
    with pytest.raises(ConfigError, match="service was removed and level added"):
        migrate(world.database, settings)
    assert world.rows(f"show create table `{world.name}`") == before
    with world.database.transaction() as tx:
        made = [name for name in tx.table_names() if name.startswith(other)]
    assert sorted(made) == [f"{other}{of}" for of in ("", "__folded", "__segments", "_minutes")]


def test_a_flood_of_values_stops_before_anything_is_written(world: World) -> None:
    """Raising the limit lets the same batch go on; a replay may give as many as it replaces."""
    labelled(world, max_series_per_batch=10)
    batch_id = world.planned([line(f"s{number}") for number in range(11)]).batch_id
    with pytest.raises(SeriesFloodError, match="11 rows"):
        world.run(batch_id)
    assert rows(world, "service") == {}
    assert world.rows(f"select * from `{world.name}__segments`") == []
    world.configure(max_series_per_batch=11)
    assert world.run(batch_id).committed
    assert len(rows(world, "service")) == 11
    count(world, *(f"t{number}" for number in range(11)))
    for _ in range(2):
        replay(world)
        assert sum(rows(world, "service").values()) == len(rows(world, "service")) == 22
    assert world.audit().holds


def test_a_replay_may_count_more_lines_of_fewer_bytes(world: World) -> None:
    """A row may gain lines and lose bytes, there before or new, or have as many of other bytes."""
    labelled(world, labels=["topic"], measure="bytes")
    long, short = line("x" * 1000), [line("a", "WARN"), line("b", "WARN")]
    equal = line("three", "FATAL")
    count(world, long, *short, equal, f"{AT[:-1]}8:00 WARN [c] new".encode())

    def found() -> list[tuple[int, int]]:
        read = world.rows(f"select log_count, log_bytes from `{world.name}` order by log_time")
        return [(row["log_count"], row["log_bytes"]) for row in read]

    assert found() == [(1, len(long))]
    for levels, counted in (["WARN"], short), (["FATAL"], [equal]), (["ERROR"], [long]):
        world.configure(levels=levels)
        replay(world)
        assert found()[-1] == (len(counted), sum(map(len, counted)))
        assert len(found()) == (2 if levels == ["WARN"] else 1)
        assert world.audit().holds


def test_one_label_makes_room_for_another(world: World) -> None:
    """It is taken out, then the other one is added; also when it was the only one.

    Its column still takes room: MySQL's keys hold 700 characters of labels.
    """
    for labels, service in (["service"], "cart"), ([], "shop"), (["level"], "shop"):
        labelled(world, labels=labels, label_max_chars=350)
        count(world, service)
    assert rows(world, "service", "level") == {("cart", ""): 1, ("", ""): 1, ("", "ERROR"): 1}
    assert world.audit().holds
    assert world.migrate() == []
    with pytest.raises(ConfigError, match="3 of 701 characters together; 8 and 700 are the most"):
        labelled(world, labels=["level", "topic"], label_max_chars=1)
    labelled(world, labels=["service"], label_max_chars=350)
    count(world, "cart")
    assert rows(world, "service")["cart",] == 2


def test_a_label_may_be_called_like_a_column_of_the_ledger(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever reads or replays the counts, the ones of other rules, too."""
    names = ["said", "bucket", "incarnation_id", "batch_id", "state", "kind", "records", "rows"]
    labelled(world, line_format="json", levels=[], labels=names, measure="bytes")
    fields = ", ".join(f'"{name}": "{name[0]}"' for name in names)
    count(world, f'{{"time": "{ISO}:00", {fields}}}'.encode(), f'{{"time": "{ISO}:00"}}'.encode())
    expected = {tuple(name[0] for name in names): 1, ("",) * len(names): 1}
    assert rows(world, *names) == expected
    replay(world)
    assert rows(world, *names) == expected
    assert world.audit().holds
    found, wrong = recount(world.context(world.reader), world.name, lambda *_: None)
    assert (wrong, found.not_checkable) == ([], ())
    last = world.batches()[-1]["batch_id"]
    shown = batch(world.context(), last, rows=1)
    assert (shown.minutes_touched, shown.rows_touched, len(shown.minutes)) == (1, 2, 1)
    monkeypatch.setattr("tally.ledger.series.MARKED_BATCHES_MAX", 0)  # so that it reads the span
    assert [(bar.lines, bar.replayed) for bar in minutes(world.context(), world.name).bars] == [
        (2, True)
    ]
    behind = minute(world.context(), world.name, datetime.fromisoformat(ISO))
    assert [(part.batch_id, part.lines) for part in behind.parts] == [(last, 2)]
    world.configure(levels=["ERROR"])
    told = counts(world.context(), world.name)
    assert told.outdated is not None
    assert told.outdated.first_minute == AT
    world.configure(levels=[])
    replay(world, MinutesAsked(first=AT, last=AT))
    assert rows(world, *names) == expected
    world.delete_records(0, before=2)
    pruned(world)
    behind = minute(world.context(), world.name, datetime.fromisoformat(ISO))
    assert (behind.parts, behind.folded_lines, rows(world, *names)) == ((), 2, expected)
    assert world.audit().holds
    world.execute(f"update `{world.name}` set log_count = 2 where said = ''")
    assert [v.check for v in world.audit().findings] == ["result"]


@pytest.mark.parametrize("before", [[], ["level"]], ids=["plain", "labelled"])
def test_a_table_holds_the_counts_of_one_pipeline(
    world: World, tmp_path: Path, before: list[str]
) -> None:
    """No other migration or plan takes it, also when that pipeline is configured no longer."""
    labelled(world, labels=before)
    count(world, "cart", "shop")
    columns = world.rows(f"show columns from `{world.name}`")
    other = replace(world, config=tmp_path / "other.toml", name=f"{world.name}_b", keys={})
    for labels in ["service"], []:
        other.configure(line_format=PATTERN, labels=labels, result_table=world.name)
        with pytest.raises(ConfigError, match=f"holds the counts of pipeline {world.name}\\b"):
            other.migrate()
    with pytest.raises(ConfigError, match=f"holds the counts of pipeline {world.name}\\b"):
        other.plan()
    assert unknown(other)
    assert world.rows(f"show columns from `{world.name}`") == columns
    assert world.audit().holds


NO_COUNTS = "no table of counts"
UNRELATED = {
    "id int primary key, name text": "it has the columns id, name",
    "log_time varchar(20) primary key, log_count int": NO_COUNTS,
    "log_time datetime, log_count int": NO_COUNTS,
    "log_time datetime primary key, log_count text": NO_COUNTS,
    "log_time datetime primary key, log_count int, host int not null": NO_COUNTS,
    "log_time datetime, log_count int, t datetime default now(), primary key (log_time, t)": (
        "has rows that are unique by (log_time, t), not by (log_time)"
    ),
    "log_time datetime, log_count int,t text default (uuid()), primary key (log_time,t(9))": (
        "has rows that are unique by (log_time, t(9)), not by (log_time)"
    ),
    "log_time datetime primary key, log_count int unique": (
        "has rows that are unique by (log_time) and by (log_count), not by (log_time)"
    ),
    "log_time datetime unique not null, log_count int": "has rows that are unique by (log_time)",
    "log_time datetime primary key, log_count int) engine = MyISAM -- ": (
        "is of the engine MyISAM, not of InnoDB"
    ),
}
"""Columns of tables that are none of counts, and what is said of them."""


@pytest.mark.parametrize("labels", [[], ["level"]], ids=["plain", "labelled"])
def test_an_unrelated_table_is_not_taken(world: World, labels: list[str]) -> None:
    table = f"{world.name}_t"
    world.configure(line_format=PATTERN, labels=labels, result_table=table)
    world.produce([line("cart")])
    for columns, wrong in UNRELATED.items():
        world.execute(f"create table `{table}` ({columns})")
        before = world.rows(f"show create table `{table}`")
        for take in (world.migrate, world.plan):
            with pytest.raises((ConfigError, SchemaError)) as raised:
                take()
            is_said = wrong in raised.value.what
            assert is_said or (labels and isinstance(raised.value, SchemaError)), columns
        assert world.rows(f"show create table `{table}`") == before
        assert unknown(world), columns
        world.execute(f"drop table `{table}`")


def test_a_table_with_rows_of_its_own_is_not_taken(world: World) -> None:
    """The ledger could not say where they come from; an empty one of the right shape is taken."""
    table = f"{world.name}_t"
    world.execute(f"create table `{table}` (log_time datetime primary key, log_count bigint)")
    world.execute(f"insert into `{table}` values ('{AT}:00', 1)")
    world.configure(result_table=table)
    for take in (world.migrate, world.plan):
        with pytest.raises(ConfigError, match="has rows that the ledger knows nothing of"):
            take()
    world.execute(f"delete from `{table}`")
    world.migrate()
    world.plan()
    assert not unknown(world)


def test_the_audit_adds_up_rows_of_columns_that_it_does_not_know(world: World) -> None:
    """Someone has widened the result table: another value of the new column is another row."""
    world.configure(line_format=PATTERN)
    count(world, "cart", "shop")
    world.execute(
        f"alter table `{world.name}` add column x varchar(9) not null default '',"
        " drop primary key, add primary key (log_time, x)"
    )
    assert world.audit().holds
    world.execute(f"insert into `{world.name}` values ('{AT}:00', 1, 'more')")
    assert [v.check for v in world.audit().findings] == ["result"]
    world.execute(f"update `{world.name}` set log_count = 1")
    (violation,) = world.audit().findings
    assert violation.detail == "the table says 2 in 2 rows, segments add up to 2"


COLUMN = "modify service varchar(200) character set utf8mb4 collate utf8mb4_0900_{} not null"


def test_the_audit_sees_a_table_in_which_counts_would_meet(world: World) -> None:
    """Someone has changed the result table; so far no row is wrong. The runbook says what mends."""
    labelled(world)
    count(world, "cart")
    assert world.audit().holds
    for change, wrong, mend in (
        (
            f"{COLUMN.format('ai_ci')} default ''",
            "compares service by utf8mb4_0900_ai_ci, not by ",
            f"{COLUMN.format('bin')} default ''",
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
    ):
        world.execute(f"alter table `{world.name}` {change}")
        (violation,) = world.audit().findings
        assert (violation.check, violation.where) == ("result", f"table {world.name}")
        assert wrong in violation.detail
        world.execute(f"alter table `{world.name}` {mend}")
        assert world.audit().holds


@pytest.mark.parametrize(
    "change",
    [
        "add id bigint not null auto_increment unique, add remark varchar(9) unique",
        (
            "add id int auto_increment, add unique minute (log_time, service),"
            " drop primary key, add primary key (id)"
        ),
    ],
    ids=["numbered and null", "another primary key"],
)
def test_an_index_in_which_no_counts_meet_is_no_fault(world: World, change: str) -> None:
    """Tally never states the column, and its rows have a number of their own or none."""
    labelled(world)
    count(world, "cart", "shop")
    world.execute(f"alter table `{world.name}` {change}")
    count(world, "cart", "home")
    assert rows(world, "service") == {("cart",): 2, ("shop",): 1, ("home",): 1}
    assert world.audit().holds


def test_no_label_is_added_under_an_index_that_joins_its_rows(world: World) -> None:
    """The column would be there, and the first minute with two values could not be committed."""
    world.configure(line_format=PATTERN)
    count(world, "cart")
    world.execute(f"alter table `{world.name}` add unique a_minute (log_time)")
    before = world.rows(f"show create table `{world.name}`")
    with pytest.raises(SchemaError, match=r"its unique index a_minute \(log_time\)") as raised:
        labelled(world)
    assert world.rows(f"show create table `{world.name}`") == before
    statement, _, _ = raised.value.next_step.partition(";")
    world.execute(statement)
    labelled(world)
    count(world, "cart", "shop")
    assert rows(world, "service") == {("",): 1, ("cart",): 1, ("shop",): 1}
    assert world.audit().holds


def test_another_result_table_is_refused_before_it_is_made(world: World) -> None:
    """A pipeline's counts stay together; status says so, too, and not "migrate"."""
    count(world, "cart")
    batch_id = world.planned([line("shop")]).batch_id
    other = f"{world.name}_other"
    world.configure(result_table=other)
    with pytest.raises(ConfigError, match=f"has counted into {world.name} so far"):
        world.migrate()
    assert not world.rows("show tables like %s", (other,))
    with world.database.transaction(read_only=True) as tx, pytest.raises(ConfigError):
        check_tables(tx, tables_of(tx, world.name), world.pipeline)
    world.execute(f"create table `{other}` like `{world.name}`")
    for refused in (lambda: world.run(batch_id), world.plan):
        with pytest.raises(ConfigError, match="has counted into"):
            refused()
    assert world.rows(f"select * from `{other}`") == []
    assert not world.audit().holds
    world.configure(result_table=world.name)
    assert world.run(batch_id).committed
    assert world.audit().holds


def test_a_dropped_result_is_made_again_with_its_labels(world: World) -> None:
    """Without the counts so far, of which the audit tells; an open batch is no obstacle."""
    labelled(world)
    count(world, "cart")
    batch_id = world.planned([line("shop")]).batch_id
    world.execute(f"drop table `{world.name}`")
    with pytest.raises(SchemaError, match=f"has no table {world.name} yet") as raised:
        world.plan()
    assert raised.value.next_step == "tally migrate"
    lacking = missing(world.database, world.settings)
    assert world.migrate() == lacking != []
    assert missing(world.database, world.settings) == []
    assert world.run(batch_id).committed
    assert rows(world, "service") == {("shop",): 1}
    assert "the table says None, segments add up to 1" in str(world.audit().findings)


@pytest.mark.parametrize("which", ["__segments", "__folded"])
def test_dropped_contributions_are_not_made_again(world: World, which: str) -> None:
    """Empty ones would let a replay add to the result what is in it already."""
    labelled(world)
    world.execute(f"drop table `{world.name}{which}`")
    for refused in (world.plan, world.migrate, lambda: missing(world.database, world.settings)):
        with pytest.raises(SchemaError, match=f"has lost {world.name}{which}") as raised:
            refused()
        assert "restore the database" in raised.value.next_step


def test_a_label_that_comes_while_a_batch_is_open_is_told_of_its_way(world: World) -> None:
    """What run, plan and migrate say next is one thing, and it helps."""
    world.migrate(line_format=PATTERN)
    batch_id = world.planned([line("cart")]).batch_id
    world.configure(labels=["service"])
    for refused in (
        lambda: world.run(batch_id),
        world.plan,
        world.migrate,
        lambda: missing(world.database, world.settings),
    ):
        with pytest.raises(SchemaError, match=f"1 open batch: {batch_id}") as raised:
            refused()
        assert raised.value.next_step.startswith(f"tally abandon {batch_id} --reason '…', then ta")
    abandon(world.context(), batch_id, reason="a new label")
    world.migrate()
    assert world.minute() is not None
    assert rows(world, "service") == {("cart",): 1}


@pytest.mark.parametrize("key", ["log_time", "log_time, service"])
def test_a_label_that_was_there_is_made_exact(world: World, key: str) -> None:
    """Of an empty table of the right shape, or one that a migration before left so."""
    collation = "bin default ''" if "service" in key else "ai_ci not null default ''"
    world.execute(f"drop table if exists `{world.name}`")
    world.execute(
        f"create table `{world.name}` (log_time datetime, log_count bigint not null,"
        f" service varchar(200) character set utf8mb4 collate utf8mb4_0900_{collation},"
        f" primary key ({key}))"
    )
    labelled(world, label_max_chars=200)
    count(world, "cart", "CART", "Cärt", "cart")
    assert len(rows(world, "service")) == 3
    assert world.audit().holds


def test_no_unrelated_table_beside_the_result_is_taken(world: World) -> None:
    world.configure(line_format=PATTERN)
    count(world, "cart")
    table = f"{world.name}__segments"
    world.execute(f"create table `{table}` (segment_id bigint primary key, log_time datetime)")
    before = world.rows(f"show create table `{table}`")
    with pytest.raises(ConfigError, match=f"need a table {table}, which exists and is no table"):
        labelled(world)
    assert world.rows(f"show create table `{table}`") == before
    world.execute(f"drop table `{table}`")
    labelled(world)
    assert world.audit().holds


def test_folded_rows_keep_their_labels_and_a_later_label_cannot_reach_them(world: World) -> None:
    labelled(world)
    count(world, "cart", "shop")
    world.delete_records(0, 2)
    assert pruned(world).segments == 1
    assert rows(world, "service") == {("cart",): 1, ("shop",): 1}
    assert world.rows(f"select * from `{world.name}__segments`") == []
    assert len(world.rows(f"select * from `{world.name}__folded`")) == 2
    assert world.audit().holds
    count(world, "shop", "cart")
    labelled(world, labels=["service", "level"])
    note = preview(world).notes[-1]
    assert note.startswith("1 minute, ")
    assert "pruned" in note
    replay(world)
    assert rows(world, "level") == {("",): 2, ("ERROR",): 2}
    assert world.audit().holds


def test_tables_from_before_get_the_index_by_minute(world: World) -> None:
    labelled(world)
    contributions, _ = tables_beside(world.name)
    world.execute(f"alter table `{contributions}` drop key {MINUTE_INDEX}")
    lacking = [f"index {MINUTE_INDEX} of {contributions}"]
    assert missing(world.database, world.settings) == lacking
    assert world.migrate() == lacking
    assert missing(world.database, world.settings) == []
    found = world.rows(f"show index from `{contributions}` where Key_name = %s", (MINUTE_INDEX,))
    assert [row["Column_name"] for row in found] == ["log_time"]


@pytest.mark.parametrize(
    ("block", "keys"),
    [(0, {"labels": []}), (1, {"measure": "bytes"})],
    ids=["plain", "labels and bytes"],
)
def test_a_table_that_others_changed_is_rebuilt_from_the_ledger_as_the_runbook_says(
    world: World, block: int, keys: dict[str, object]
) -> None:
    """Live and pruned segments alike; the audit finds the change, and nothing after it."""
    runbook = (PROJECT / "docs" / "runbook.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```sql\n(start transaction;.*?)```", runbook, re.DOTALL)
    assert len(blocks) == 2
    labelled(world, **keys)
    for service in ("cart", "shop"):
        count(world, service, "cart", line("cart", "INFO"))
    world.delete_records(0, 3)
    assert pruned(world).segments == 1
    whole = f"select * from `{world.name}` order by 1, 2"
    before = world.rows(whole)
    assert sum(row["log_count"] for row in before) == 4
    world.execute(f"update `{world.name}` set log_count = log_count + 7")
    assert not world.audit().holds
    for statement in blocks[block].split(";")[1:-2]:  # a transaction is what executes them
        world.execute(statement.replace("error_log", world.name))
    assert world.rows(whole) == before
    assert world.audit().holds
