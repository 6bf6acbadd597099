"""Pipelines that keep each line that they count, as rows or files; also on another server."""

import secrets
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pymysql
import pytest

from tally import errors
from tally.aggregates.counts import CountRequest, Counts
from tally.context import Reader
from tally.deliveries.kept_lines import KeptLines, keep
from tally.ledger import batches
from tally.ledger.line_sets import Unshown, unshown
from tally.set_up.migrate import migrate, missing
from tally.status.doctor.diagnosis import Diagnosis
from tally.status.doctor.servers import check_database, check_server
from tally.status.health import Health
from tally.status.status import Statuses
from tally_local.stack.stack import Stack
from tests.minute.deliveries import COUNTED, LINES, UNPUBLISHED, Delivery, around, delivered, line
from tests.minute.test_prune import pruned
from tests.python_reader import lines_of
from tests.world import make_settings

pytestmark = pytest.mark.stack


@pytest.fixture(params=["rows", "procedure", "files"])
def world(
    migrated: Stack, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Delivery:
    """A topic of two partitions, whose error lines are kept, by each delivery that does so."""
    monkeypatch.setattr("tally.deliveries.file_sets.FileSets.kept_s", 0)
    return delivered(request.param, migrated, tmp_path, partitions=2)


by_rows = pytest.mark.parametrize("world", ["rows"], indirect=True)
"""The lines are rows that statements write."""
by_procedure = pytest.mark.parametrize("world", ["procedure"], indirect=True)
"""The lines are rows that a procedure of the database writes."""


@pytest.fixture
def elsewhere(migrated: Stack, tmp_path: Path) -> Delivery:
    """A pipeline whose lines are in another database than the ledger."""
    world = delivered("batch", migrated, tmp_path, partitions=2)
    world.configure(delivery="rows")
    world.keep_in(world.new_database())
    world.migrate()
    return world


def test_many_lines_are_written_in_parts(world: Delivery, monkeypatch: pytest.MonkeyPatch) -> None:
    for writer in ("row_sets._RowWriter", "file_sets._FileWriter"):
        monkeypatch.setattr(f"tally.deliveries.{writer}.lines_at_once", 1_000)
        monkeypatch.setattr(f"tally.deliveries.{writer}.bytes_at_once", 2**20)
    lines = [f"2017-07-30 14:{n % 60:02}:00 ERROR {n} {'x' * (n % 100)}" for n in range(2_345)]
    long = [f"2017-07-30 14:09:00 ERROR {'y' * 900_000} {n}" for n in range(3)]
    world.produce(lines, 0)
    world.produce(long, 1)
    sent: list[int] = []
    query = pymysql.Connection.query

    def noted(self: Any, sql: Any, **options: Any) -> int:
        sent.append(len(sql))
        return query(self, sql, **options)

    with patch.object(pymysql.Connection, "query", noted):
        world.run_open()
    assert len(sent) < 500
    assert [text for _, _, text in world.kept_lines()] == lines + long
    assert world.audit().holds


def test_a_writer_that_wakes_after_a_replay_invents_no_row(world: Delivery) -> None:
    """An attempt stops before its write; its batch is counted, then replayed by other levels."""
    (batch_id,) = world.planned_in(0)
    sleeper = world.begun(batch_id, *LINES)
    world.run_all([batch_id])
    world.replay(levels=["INFO"])
    with pytest.raises(errors.FencedError, match="was dropped"):
        sleeper.seal()
    assert world.kept_lines() == [(0, 2, LINES[2])]
    assert world.all_kept() == 1
    assert world.audit().holds


def test_an_attempt_writes_beside_a_stopped_one(world: Delivery) -> None:
    """Neither waits for the other; the rows of the first one vanish with its set."""
    (batch_id,) = world.planned_in(0)
    older = world.attempt(batch_id)
    first = world.begun(batch_id, "an older rule")
    with pytest.raises(
        errors.FencedError, match="attempt 2 keeps its lines, and attempt 1 no longer"
    ):
        keep(*older)
    first._flush()
    assert world.all_kept() == (0 if world.pipeline.files_url else 1), "no file before its end"
    assert world.kept() == [], "an open set is not shown"
    world.run_all([batch_id])
    assert len(world.kept()) == world.all_kept() == 3
    with pytest.raises(errors.FencedError, match="was dropped"):
        first.seal()
    assert world.audit().holds


def test_a_set_of_the_newest_attempt_waits_for_its_commit(world: Delivery) -> None:
    """Whoever publishes meanwhile leaves it, until its batch can no longer be committed."""
    (batch_id,) = world.planned_in(0)
    lines = world.begun(batch_id, *LINES)
    world.delivery.show()
    assert lines.seal().lines == 4
    world.delivery.show()
    assert (world.all_kept(), world.kept()) == (4, [])
    world.database.run(lambda tx: batches.abandon(tx, batch_id, by="ann", reason="a test"))
    world.delivery.show()
    assert world.all_kept() == 0
    world.run_open()
    assert len(world.kept()) == 3
    assert world.audit().holds


@by_rows
def test_rows_are_written_once_when_answers_to_commit_are_lost(world: Delivery) -> None:
    """Each COMMIT of the server of the lines is applied, and its answer lost, once."""
    lost: set[int] = set()
    commit = pymysql.Connection.commit

    def unanswered(self: Any) -> None:
        commit(self)
        if len(lost) < 3:
            lost.add(len(lost))
            raise pymysql.err.OperationalError(2013, "Lost connection (a test)")

    lines = world.begun(*world.planned_in(0), *LINES)
    with patch.object(pymysql.Connection, "commit", unanswered):
        line_set = lines.seal()
    assert len(lost) == 3
    assert line_set.lines == world.all_kept() == 4


@by_rows
def test_a_set_with_other_rows_than_lines_is_not_committed(world: Delivery) -> None:
    (batch_id,) = world.planned_in(0)
    lines = world.begun(batch_id, *LINES)
    lines._flush()
    world.execute(f"delete from `{world.name}_rows__kept` limit 1")
    with pytest.raises(errors.DataLossError, match="of 4 lines 3 were found again"):
        lines.seal()

    def change(to: Any, reader: Reader, requests: Any, work: Any, open_set: Any) -> Any:
        def changed(request: CountRequest, counts: Counts) -> Any:
            return work(request, replace(counts, line_set=to(counts.line_set)))

        return reader.count_each(requests, changed, open_set)

    for to, told in (
        (lambda kept: replace(kept, lines=2), "3 lines were counted and 2 kept"),
        (lambda _: None, "its lines were counted, and not kept"),
    ):
        with pytest.raises(errors.DataLossError, match=told):
            world.run_all([batch_id], around(world.reader, partial(change, to)))
    assert world.counts() == {}
    world.run_all([batch_id])
    assert world.audit().holds


@by_rows
def test_a_line_that_is_too_long_for_the_server_is_named(world: Delivery) -> None:
    """Before the server ends the connection, which would look as if it were down."""
    lines = world.begun(*world.planned_in(0))
    (row,) = world.rows("select @@max_allowed_packet as n")
    with pytest.raises(errors.StatementError, match=f"offset 2 of {world.topic}/0 has"):
        lines.add(lines_of([line(2, "x" * (row["n"] // 2))]))


def test_rows_are_shown_by_the_next_run_when_a_driver_is_killed_behind_its_commit(
    world: Delivery,
) -> None:
    """Until then readers see what was there before: all of it, and nothing of what replaces it."""
    world.count_lines()
    killed = patch.object(KeptLines, "show_soon", side_effect=KeyboardInterrupt)
    for levels in (["ERROR", "INFO"], ["INFO"]):
        with killed, pytest.raises(KeyboardInterrupt):
            world.replay(levels=levels)
        assert [offset for _, offset, _ in world.kept_lines()] == [0, 1, 3]
    assert world.counts() == {"2017-07-30 14:10": 1}
    world.count_lines(1)
    assert world.kept_lines() == [(0, 2, LINES[2]), (1, 2, LINES[2])]
    assert world.all_kept() == 2
    assert world.audit().holds


def test_a_publisher_that_wakes_late_brings_nothing_back(world: Delivery) -> None:
    """It has asked the ledger before a replay, and tells the server of the lines after it."""
    with UNPUBLISHED:
        world.count_lines()
    store = world.delivery.store
    (old,) = store.waiting()
    with patch("tally.deliveries.set_store.SetStore.delete_dropped"):
        world.replay(levels=["INFO"])
    assert world.all_kept() == 4
    store.publish([old.set_id], [])
    assert world.kept_lines() == [(0, 2, LINES[2])]
    assert world.audit().holds


@by_rows
def test_what_is_not_shown_yet_is_not_folded(world: Delivery) -> None:
    """Its set would be that of no segment; once shown, its lines outlive what Kafka has."""
    world.count_lines()
    world.count_lines()
    with UNPUBLISHED:
        world.replay(levels=["INFO"])
    world.delete_records(0, 8)
    assert pruned(world).segments == 0
    assert [offset for _, offset, _ in world.kept_lines()] == [0, 1, 3, 4, 5, 7]
    world.delivery.show()
    assert pruned(world).segments == 1
    assert {s["state"] for s in world.segments()} == {"folded"}
    assert [offset for _, offset, _ in world.kept_lines()] == [2, 6]
    assert world.audit().holds
    world.execute(f"delete from `{world.name}_rows__kept` limit 1")
    told = "2 lines were counted, 1 rows are there"
    assert [v.detail for v in world.audit().findings] == [told]


def test_a_set_that_is_gone_stays_in_the_outbox(world: Delivery) -> None:
    """As where the tables of the lines were restored from an older copy."""
    with UNPUBLISHED:
        world.count_lines()
    world.execute(f"delete from `{world.pipeline.rows_view}__sets`")
    world.delete_records(0, 4)
    world.plan()
    assert pruned(world).segments == 0
    with world.database.transaction(read_only=True) as tx:
        assert unshown(tx, world.name).segments == 1
        assert unshown(tx, "another") == Unshown()
    assert ["readers do not see" in v.detail for v in world.audit().findings] == [True]


ANOTHER_SET = (
    "insert into {sets} (segment_id, batch_id, attempt, topic, cluster_id, topic_id, partition_id,"
    " from_offset, until_offset, state) values (1000000000, 1, 1, 't', 'c', 'i', 0, 0, 9, 'live')"
)
ANOTHER_ROW = (
    "insert into {kept} (set_id, record_offset, log_time)"
    " select set_id, 2, '2017-07-30 14:10:00' from {sets}"
)


@by_rows
@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("delete from {kept} limit 1", "3 lines were counted, 2 rows are there"),
        (
            "update {kept} set log_time = '2017-07-30 14:08:00' limit 1",
            "14:08:00: 0 lines, 1 rows; 2017-07-30 14:09:00: 2 lines, 1 rows",
        ),
        ("update {sets} set state = 'dropped'", "readers do not see its set"),
        (ANOTHER_SET, "0 rows of a segment that is not part of the result"),
        (ANOTHER_ROW, "3 lines were counted, 4 rows are there"),
    ],
)
def test_the_audit_finds_rows_that_are_not_the_lines(
    world: Delivery, change: str, told: str
) -> None:
    world.count_lines()
    view = f"{world.name}_rows"
    world.execute(change.format(kept=f"`{view}__kept`", sets=f"`{view}__sets`"))
    (found,) = world.audit().findings
    assert found.check == "rows"
    assert told in found.detail


@by_rows
def test_the_audit_tells_two_segments_of_one_set(world: Delivery) -> None:
    """Although the lines of one may be as many, and of the same minute, as those of the other."""
    world.count_lines()
    world.count_lines()
    first, second = [row["segment_id"] for row in world.segments()]
    world.execute(
        f"update segment set row_set = (select n from (select row_set as n from segment where"
        f" segment_id = {first}) as other) where segment_id = {second}"
    )
    world.execute(f"delete from `{world.name}_rows__sets` where segment_id = {second}")
    assert {v.where.split()[1] for v in world.audit().findings} == {str(second)}


def test_lines_that_were_restored_alone_are_written_anew_by_a_replay(world: Delivery) -> None:
    """The audit names the set that readers do not see."""
    sets = f"`{world.pipeline.rows_view}__sets`"
    for text in ("2017-07-30 14:08:00 ERROR first", "2017-07-30 14:10:00 ERROR second"):
        world.produce([text])
        world.run_open()
    (last,) = world.rows(f"select set_id as n from {sets} where from_offset = 1")
    if world.pipeline.files_url is None:
        world.execute(f"delete from `{world.name}_rows__kept` where set_id = {last['n']}")
    world.execute(f"delete from {sets} where set_id = {last['n']}")
    told = f"readers do not see its set {last['n']}"
    assert [v.detail for v in world.audit().findings] == [told]
    world.replay()
    assert world.audit().holds
    assert len(world.kept()) == sum(world.counts().values()) == 2


def test_lines_are_kept_where_they_were_kept_before(world: Delivery) -> None:
    world.count_lines()
    (batch_id,) = world.planned_in(1)
    nowhere = {"delivery": "batch", "files_url": None, "row_procedure": None}
    for keys in (nowhere, {"rows_table": "p_other_rows"}):
        changed = replace(world)
        changed.configure(**keys)
        with pytest.raises(errors.ConfigError, match=f"kept its lines in {world.name}_.* so far"):
            changed.plan()
        for refused in (lambda changed=changed: changed.run_all([batch_id]), changed.replay):
            with pytest.raises(errors.TallyError):
                refused()
    assert world.counts() == COUNTED


def test_a_pipeline_that_kept_no_lines_does_not_begin_to(migrated: Stack, tmp_path: Path) -> None:
    """Its earlier segments have no rows, and the rows would not be the counts."""
    world = Delivery.create(migrated, tmp_path)
    world.count_lines()
    world.configure(delivery="rows")
    said = "has kept no lines so far"
    for refused in (world.plan, world.migrate):
        with pytest.raises(errors.ConfigError, match=said):
            refused()
    with world.database.transaction() as tx:
        assert f"{world.name}_rows" not in tx.table_names()
    view = Statuses(ctx=world.context()).of(world.name)
    assert (view.health, view.problems[0].reason) == ("fail", "unprepared")
    assert said in view.problems[0].detail
    table = f"{world.name}_else"
    world.execute(f"create table `{table}` (a int)")
    with pytest.raises(errors.ConfigError, match=f"{table} exists and is something else"):
        delivered("rows", migrated, tmp_path, rows_table=table)


def test_pipelines_do_not_share_a_procedure_or_a_folder(migrated: Stack, tmp_path: Path) -> None:
    procedure = f"keep_{secrets.token_hex(4)}"
    one = delivered("procedure", migrated, tmp_path, row_procedure=procedure)
    second = f"{one.name}_b"
    other = {**one.keys, "rows_table": f"{second}_rows", "result_table": second}
    files = {"topics": [one.topic], "delivery": "files"}
    shared = {
        one.name: one.keys,
        second: other,
        "c": {**files, "files_url": f"{tmp_path}/a"},
        "d": {**files, "files_url": f"{tmp_path}/a/b"},
    }
    disabled = make_settings(one.stack, one.config, shared).disabled
    assert f"the same row_procedure {procedure}" in disabled[second][0]
    assert f"the same folder file://{tmp_path}/a in files_url" in disabled["d"][0]
    settings = make_settings(one.stack, one.config, {second: other})
    with pytest.raises(errors.ConfigError, match=f"was made for pipeline {one.name}, ledger"):
        migrate(one.database, settings)


def test_lines_of_another_ledger_are_left_alone(elsewhere: Delivery, tmp_path: Path) -> None:
    """A ledger with the same pipeline, as of another environment, takes and deletes nothing."""
    elsewhere.count_lines()
    here, there = elsewhere.settings.mysql.database, elsewhere.new_database()
    staging = replace(elsewhere, config=tmp_path / "staging.toml")
    staging.config.touch(mode=0o600)
    text = elsewhere.config.read_text()
    staging.config.write_text(text.replace(f'database = "{here}"', f'database = "{there}"'))
    told = f"says that it has lines of pipeline {elsewhere.name}, ledger"
    with pytest.raises(errors.ConfigError, match=told):
        staging.migrate()
    with pytest.raises(errors.ConfigError, match=told):
        staging.plan()
    assert len(elsewhere.kept()) == 3
    assert elsewhere.audit().holds


def test_lines_that_are_elsewhere_are_not_forgotten(elsewhere: Delivery) -> None:
    with UNPUBLISHED:
        elsewhere.count_lines()
    tables = elsewhere.rows("show tables like %s", (f"{elsewhere.name}_rows%",))
    assert not tables, "nothing of it is in the ledger's database"
    text = elsewhere.config.read_text()
    assert elsewhere.settings.results is not None
    moved = text.replace(elsewhere.settings.results.database, elsewhere.new_database())
    elsewhere.config.write_text(moved)
    with pytest.raises(errors.ConfigError, match="has kept lines, and there is no"):
        elsewhere.migrate()
    with pytest.raises(errors.SchemaError):
        elsewhere.plan()
    elsewhere.config.write_text(text)
    assert elsewhere.run_open() == []
    assert elsewhere.audit().holds
    elsewhere.replay()
    assert len(elsewhere.kept()) == 3
    assert elsewhere.audit().holds


def test_lines_are_not_left_behind_also_when_all_of_them_are_folded(
    world: Delivery, tmp_path: Path
) -> None:
    """Kafka no longer has the records: what is kept of them is all there is."""
    world.count_lines()
    before, written = world.kept_lines(), world.config.read_text()
    world.delete_records(0, 4)
    assert pruned(world).segments == 1
    moves: list[Callable[[], Any]] = [lambda: world.keep_in(world.new_database())]
    if world.pipeline.files_url:
        moves.append(lambda: world.configure(files_url=str(tmp_path / "another")))
    for move in moves:
        move()
        with pytest.raises(errors.ConfigError, match=f"pipeline {world.name} has kept lines"):
            world.migrate()
        world.config.write_text(written)
    assert world.kept_lines() == before


def test_the_doctor_looks_at_the_server_of_the_lines(elsewhere: Delivery) -> None:
    """Its settings, and what may be done with its tables; a power cut must not take lines back."""

    def found() -> dict[str, Diagnosis]:
        return {d.check: d for d in check_database(elsewhere.context(), elsewhere.config)}

    fine = [f"results.{name}" for name in ("reachable", "version", "innodb", "session", "writable")]
    asked = found()
    assert {asked[check].health for check in (*fine, "rows.grants")} == {Health.OK}
    server = {"innodb_flush_log_at_trx_commit": "2"}
    facts = {"version": "8.4.0", "innodb": True, "session": {}, "server": server}
    loose = {d.check: d.health for d in check_server("results", facts)}
    assert loose["results.durability"] is Health.FAIL
    results = elsewhere.settings.results
    assert results is not None
    user, database = f"{results.user}@'127.0.0.1'", results.database
    elsewhere.as_root(
        f"revoke all on {database}.* from {user}",
        f"grant select, insert, update on {database}.* to {user}",
    )
    assert f"delete from {elsewhere.name}_rows__kept" in found()["rows.grants"].detail


# --- procedures

HEAD = "create procedure `{name}_own`(in written_set bigint unsigned, in written_lines json)"
# As a database has it that owns its logic: it also keeps a list of its own, once for each line.
OWN = """
    modifies sql data
    begin
        call `{name}_rows_keep`(written_set, written_lines);
        insert ignore into `{name}_seen` select written_set, w.record_offset, from_base64(w.value)
        from json_table(written_lines, '$[*]' columns (
            record_offset bigint path '$.record_offset', value longtext path '$.value')) w;
    end
"""


def own(world: Delivery, text: str) -> None:
    world.as_root("use tally", (HEAD + text).format(name=world.name))
    world.configure(row_procedure=f"{world.name}_own")
    assert missing(world.database, world.settings) == [], "it is there, so nothing is to be made"


@by_procedure
def test_the_procedure_of_the_database_is_called(world: Delivery) -> None:
    """It does more than Tally asks for, in the same transaction."""
    columns = "set_id bigint, o bigint, value longblob"
    world.execute(f"create table `{world.name}_seen` ({columns}, primary key (set_id, o))")
    own(world, OWN)
    world.count_lines()
    seen = world.rows(f"select value from `{world.name}_seen` order by o")
    assert [row["value"].decode() for row in seen] == [LINES[0], LINES[1], LINES[3]]
    world.replay(levels=["INFO"])
    assert world.kept_lines() == [(0, 2, LINES[2])]
    assert world.audit().holds


@by_procedure
@pytest.mark.parametrize(
    ("text", "error", "told"),
    [
        (" begin end", errors.DataLossError, "of 3 lines 0 were found again"),
        (
            " begin signal sqlstate '45000' set message_text = 'no lines on a Sunday'; end",
            errors.StatementError,
            "no lines on a Sunday",
        ),
    ],
    ids=["forgetful", "refusing"],
)
def test_a_procedure_that_keeps_no_line_is_found_out(
    world: Delivery, text: str, error: type[errors.TallyError], told: str
) -> None:
    """Nothing is counted without its lines; what it says of one is what an operator must read."""
    own(world, text)
    (batch_id,) = world.planned_in(0)
    with pytest.raises(error, match=told):
        world.run_all([batch_id])
    assert world.counts() == {}
    world.configure(row_procedure=None)
    world.run_all([batch_id])
    assert len(world.kept()) == 3


@by_procedure
def test_whoever_counts_needs_no_right_to_write_lines(world: Delivery) -> None:
    """Only to call the procedure, which refuses a set that was dropped by itself, too."""
    user = f"caller_{secrets.token_hex(4)}"
    world.begun(*world.planned_in(0), *LINES)._flush()
    (row,) = world.rows(f"select set_id from `{world.name}_rows__sets`")
    world.execute(f"update `{world.name}_rows__sets` set state = 'dropped'")
    world.as_root(
        f"create user {user}@'127.0.0.1' identified by 'x'",
        f"grant execute on procedure `tally`.`{world.name}_rows_keep` to {user}@'127.0.0.1'",
    )
    written = '[{"record_offset": 9, "log_time": "2017-07-30 14:09:00", "value": null}]'
    call = f"call `{world.name}_rows_keep`({row['set_id']}, %s)"
    insert = f"insert into `{world.name}_rows__kept` values (1, 1, now(), %s, null)"
    for statement, told in ((call, "the set was dropped"), (insert, "INSERT command denied")):
        with (
            world.connect(user=user, password="x") as connection,  # noqa: S106
            connection.cursor() as cursor,
            pytest.raises(pymysql.err.OperationalError, match=told),
        ):
            cursor.execute(statement, (written,))


@by_procedure
def test_rows_and_procedure_are_exchanged_at_any_time(world: Delivery) -> None:
    """Both write the same rows into the same tables. A procedure that is gone is made again."""
    world.as_root(f"drop procedure tally.`{world.name}_rows_keep`")
    assert len(missing(world.database, world.settings)) == 1
    with pytest.raises(
        errors.SchemaError, match="_rows_keep is not there, or this user may not call it"
    ):
        world.planned_in(0)
    world.migrate()
    world.run_open()
    world.configure(delivery="rows")
    world.count_lines()
    assert [o for _, o, _ in world.kept_lines()] == [0, 1, 3, 4, 5, 7]
    assert world.audit().holds
