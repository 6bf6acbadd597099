"""Lines that a stored procedure of the database writes; test_kept_rows.py has what else holds."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pymysql
import pytest

from tally.app.migrate import migrate, missing
from tally.errors import SchemaError, StatementError
from tally.pipeline.replay import run_or_replan
from tests.minute.test_kept_rows import LINES, begun, kept, lines_of, minute, replay
from tests.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tally_local.stack.stack import Stack

pytestmark = [pytest.mark.stack, pytest.mark.spark]

# As a database has it that owns its logic: it also keeps a list of its own, once for each line.
OWN = """
    create procedure `{name}_own`(in written_set bigint unsigned, in written_lines json)
    modifies sql data
    begin
        call `{name}_rows_keep`(written_set, written_lines);
        insert ignore into `{name}_seen` select written_set, w.record_offset, from_base64(w.value)
        from json_table(written_lines, '$[*]' columns (
            record_offset bigint path '$.record_offset', value longtext path '$.value')) w;
    end
"""
FORGETFUL = """
    create procedure `{name}_own`(in written_set bigint unsigned, in written_lines json)
    begin
    end
"""
REFUSING = """
    create procedure `{name}_own`(in written_set bigint unsigned, in written_lines json)
    begin
        signal sqlstate '45000' set message_text = 'no lines on a Sunday';
    end
"""


@pytest.fixture
def world(migrated: "Stack", tmp_path: Path) -> Iterator[World]:
    """A topic of two partitions, whose error lines a procedure keeps."""
    made = World.create(migrated, tmp_path, delivery="procedure", partitions=2)
    yield made
    made.as_root(f"drop procedure if exists tally.`{made.name}_own`")


def own(world: World, text: str) -> None:
    """Make a procedure of the test's own the pipeline's."""
    world.as_root("use tally", text.format(name=world.name))
    world.configure(row_procedure=f"{world.name}_own")
    assert missing(world.database, world.settings) == [], "it is there, so nothing is to be made"


def test_a_value_of_any_bytes_arrives_as_it_was(world: World, spark: "SparkSession") -> None:
    """Through JSON, quotes, backslashes, zero bytes and bytes that are no text included."""
    texts = [f'2017-07-30 14:09:08 ERROR \\ " {{}} %s \u00e9 {n} {"x" * n}' for n in range(50)]
    world.produce([*texts, b"2017-07-30 14:09:08 ERROR \x00\xff\xfe end"], 0)
    world.configure(max_malformed_ratio=1.0)
    minute(world, spark)
    values = [value for _, value in kept(world, "record_offset, value")]
    assert {text.encode() for text in texts} <= set(values)
    assert b"2017-07-30 14:09:08 ERROR \x00\xff\xfe end" in values
    assert world.audit().holds


def test_the_procedure_of_the_database_is_called(world: World, spark: "SparkSession") -> None:
    """It does more than Tally asks for, in the same transaction."""
    world.execute(
        f"create table `{world.name}_seen` (set_id bigint, o bigint, value longblob,"
        " primary key (set_id, o))"
    )
    own(world, OWN)
    world.produce(LINES, 0)
    minute(world, spark)
    assert len(kept(world)) == 3
    seen = world.rows(f"select value from `{world.name}_seen` order by o")
    assert [row["value"].decode() for row in seen] == [LINES[0], LINES[1], LINES[3]]
    world.configure(levels=["INFO"])
    replay(world, spark)
    assert lines_of(world) == [(0, 2, LINES[2])]
    assert world.audit().holds


def test_a_procedure_that_keeps_nothing_is_found_out(world: World, spark: "SparkSession") -> None:
    """Nothing is counted without its lines."""
    own(world, FORGETFUL)
    world.produce(LINES, 0)
    (batch,) = world.plan().batches
    with pytest.raises(Exception, match="of 3 lines 0 were found again"):
        run_or_replan(world.context(spark), [batch.batch_id])
    assert world.counts() == {}


def test_the_error_of_a_procedure_is_told(world: World, spark: "SparkSession") -> None:
    """What it says of a line is what an operator must read; then all is counted."""
    own(world, REFUSING)
    world.produce(LINES, 0)
    (batch,) = world.plan().batches
    with pytest.raises(StatementError, match="no lines on a Sunday"):
        run_or_replan(world.context(spark), [batch.batch_id])
    assert world.counts() == {}
    world.configure(row_procedure=None)
    run_or_replan(world.context(spark), [batch.batch_id])
    assert len(kept(world)) == 3


def test_whoever_counts_needs_no_right_to_write_lines(world: World) -> None:
    """Only to call the procedure, which refuses a set that was dropped by itself, too."""
    world.produce(LINES, 0)
    (batch,) = world.plan().batches
    sets = f"`tally`.`{world.name}_rows__sets`"
    lines = begun(world, batch.batch_id, *LINES)
    lines._write()
    (row,) = world.rows(f"select set_id from {sets}")
    world.execute(f"update {sets} set state = 'dropped'")
    user, caller = "'caller'@'127.0.0.1'", {"user": "caller", "password": "x"}
    world.as_root(
        f"create user {user} identified by 'x'",
        f"grant execute on procedure `tally`.`{world.name}_rows_keep` to {user}",
    )
    try:
        told = '[{"record_offset": 9, "log_time": "2017-07-30 14:09:00", "value": null}]'
        with (
            world.connect(**caller) as connection,
            connection.cursor() as cursor,
            pytest.raises(pymysql.err.OperationalError, match="the set was dropped"),
        ):
            cursor.execute(f"call `{world.name}_rows_keep`(%s, %s)", (row["set_id"], told))
        with (
            world.connect(**caller) as connection,
            connection.cursor() as cursor,
            pytest.raises(pymysql.err.OperationalError, match="INSERT command denied"),
        ):
            cursor.execute(f"insert into `{world.name}_rows__kept` values (1, 1, now(), '', null)")
    finally:
        world.as_root(f"drop user {user}")


def test_a_procedure_that_is_gone_is_made_by_the_next_migration(
    world: World, spark: "SparkSession"
) -> None:
    """Until then nothing is planned."""
    world.as_root(f"drop procedure tally.`{world.name}_rows_keep`")
    assert len(missing(world.database, world.settings)) == 1
    world.produce(LINES, 0)
    with pytest.raises(SchemaError, match="_rows_keep is not there, or this user may not call it"):
        world.plan()
    migrate(world.database, world.settings)
    minute(world, spark)
    assert len(kept(world)) == 3


def test_rows_and_procedure_are_exchanged_at_any_time(world: World, spark: "SparkSession") -> None:
    """Both write the same rows into the same tables."""
    for delivery in ("rows", "procedure"):
        world.configure(delivery=delivery)
        world.produce(LINES, 0)
        minute(world, spark)
    assert [o for _, o, _ in lines_of(world)] == [0, 1, 3, 4, 5, 7]
    assert world.audit().holds
