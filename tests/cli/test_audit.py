"""`tally audit`, with and without a recount from Kafka."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import pytest

from tally.audit.recount import Recount, recount
from tally.context import Reader
from tally.formatting import plural
from tally.ledger.invariants import Violation
from tests.cli.conftest import LINE, Call, commit
from tests.minute.test_replay import lose
from tests.world import World

pytestmark = pytest.mark.stack

OTHER = "2017-07-30 14:10:59 ERROR another minute"


def test_a_sound_ledger_has_no_violation(tally: Call, world: World) -> None:
    """Exit code 0, and no claim about Kafka; before the first commit a recount reads nothing."""
    unread = partial(tally, "audit", "--recount", read_with=lambda *_: partial(pytest.fail, "read"))
    unread().ends(0)
    world.produce([LINE] * 3, 0)
    assert world.plan().batches
    assert "nothing is committed yet" in unread().ends(0).stdout
    commit(world)
    answer = tally("audit", "--json").ends(0)
    assert answer.document["holds"] is True
    assert (answer.document["records"], answer.document["matched"]) == (3, 3)
    assert answer.document["recount"] is None
    world.configure(delivery="rows")
    tally("audit").ends(2, "set delivery (and rows_table) back")


GENERATION = "join topic_incarnation i on i.incarnation_id = s.incarnation_id"
TOUCHED = "update `{name}` set log_count = 5"
INVENTED = "insert into `{name}` (log_time, log_count) values ('2000-01-01', 1)"


def changed(change: str) -> str:
    """A statement that changes the second segment, its partition, or its topic's generation."""
    tables = "segment s join partition_offset o using (incarnation_id, partition_id)"
    return (
        f"update {tables} {GENERATION} set {change}"
        " where i.pipeline = '{name}' and s.from_offset = 3"
    )


HOLE = (
    "s.from_offset = 4, s.first_offset = 4, s.until_offset = 6, s.last_offset = 5,"
    " o.next_offset = 6"
)
ANOTHER_LETTER = (
    "insert into dead_letter (segment_id, record_offset, reason, value, value_bytes)"
    " select d.segment_id, d.record_offset - 1, 'empty', d.value, d.value_bytes"
)
EARLIER = "i.state = 'retired', i.retired_at = now()"


def letters_gone(table: str) -> str:
    segments = f"segment s using (segment_id) {GENERATION}"
    return f"delete d from {table} d join {segments} where i.pipeline = '{{name}}'"


def of_second(matched: int, unmatched: int, letters: int, by_reason: int) -> str:
    return (
        f"records 2, matched {matched}, unmatched {unmatched}, malformed 1; contributions add up "
        f"to 1, dead letters are {letters}, by reason together {by_reason}"
    )


def dense(records: int, offsets: int) -> tuple[str, str]:
    said = f"{records} records were counted in {offsets} offsets, of which each has one"
    return "segment", said


CASES = {
    "end": (changed("o.next_offset = 6"), ("tiling", "counted up to 5, but next_offset is 6")),
    "overlap": (changed("s.from_offset = 2"), ("tiling", "overlap: [2, 3)"), dense(2, 3)),
    "hole": (changed(HOLE), ("tiling", "hole: [3, 4)")),
    "hole of an earlier generation": (
        *(changed(f"{HOLE}, {EARLIER}"), ("tiling", "hole: [3, 4)")),
    ),
    "gone": ("delete from `{name}`", ("result", "the table says None, segments add up to 4")),
    "touched": (TOUCHED, ("result", "the table says 5, segments add up to 4")),
    "invented": (INVENTED, ("result", "the table says 1, segments add up to None")),
    "segment": (*(changed("s.matched = 0, s.unmatched = 1"), ("segment", of_second(0, 1, 1, 1))),),
    "letter": (letters_gone("dead_letter"), ("segment", of_second(1, 0, 0, 1))),
    "continuations": (
        changed("s.continuations = 1"),
        ("segment", of_second(1, 0, 1, 1) + ", 1 left out as continuation lines"),
    ),
    "letter of a reason without a total": (
        letters_gone("dead_letter").replace("delete d from", f"{ANOTHER_LETTER} from", 1),
        ("segment", of_second(1, 0, 2, 1)),
    ),
    "total": (letters_gone("dead_letter_total"), ("segment", of_second(1, 0, 1, 0))),
    "reason": (
        letters_gone("dead_letter_total")
        .replace("delete d from", "update", 1)
        .replace(" where", " set d.reason = 'no-match' where"),
        ("segment", of_second(1, 0, 1, 1) + ", of other reasons"),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_does_not_add_up_is_found(tally: Call, world: World, case: tuple[Any, ...]) -> None:
    statement, *violations = case
    commit(world, *[LINE] * 3)
    commit(world, LINE, "nonsense")
    assert world.audit().holds
    world.execute(statement.format(name=world.name))
    answer = tally("audit", "--json").ends(1)
    assert [(f["check"], f["detail"]) for f in answer.document["findings"]] == violations
    text = " ".join(tally("audit").ends(1).stdout.split())
    assert all(said in text for _, said in violations)
    assert plural(len(violations), "violation") in text


def test_states_that_contradict_each_other_are_found(tally: Call, world: World) -> None:
    """What is live was committed, and what was committed is live or replaced."""
    of_batch = "update batch set state = '{}', committed_at = null"
    of_segment = "update segment join batch using (batch_id) set segment.state = '{}'"
    abandoned = f"{of_batch}, abandoned_at = now(), reason = 'x'"
    states = [
        ("planned", of_batch, "it is live, its batch {} is planned"),
        ("abandoned", abandoned, "it is live, its batch {} is abandoned"),
        ("planned", of_segment, "it is planned, its batch {} is committed"),
        ("abandoned", of_segment, "it is abandoned, its batch {} is committed"),
    ]
    batches = [commit(world, LINE) for _ in states]
    for batch, (state, statement, _) in zip(batches, states, strict=True):
        world.execute(f"{statement.format(state)} where batch.batch_id = %s", (batch,))
    found = tally("audit", "--json").ends(1).document["findings"]
    place = f"of {world.topic}/0 "
    assert {
        (f["where"].partition(place)[2], f["detail"]) for f in found if f["check"] == "state"
    } == {
        (f"[{n}, {n + 1})", said.format(batch))
        for n, (batch, (_, _, said)) in enumerate(zip(batches, states, strict=True))
    }


@pytest.mark.usefixtures("empty_database")  # the schema of this ledger is broken
def test_a_topic_that_the_ledger_has_twice_is_found(tally: Call, world: World) -> None:
    """One topic generation under two keys: each alone is sound, together they count twice."""
    tally("migrate").ends(0)
    for lines in (1, 2, 3):
        commit(world, *[LINE] * lines)
    _, segment, _ = world.segments()
    tally("audit").ends(0)
    # A ledger that was restored without the unique key of a topic generation.
    world.execute("alter table topic_incarnation drop key one_row_for_each_life")
    world.execute(
        "insert into topic_incarnation (pipeline, topic, topic_id, cluster_id, state, seen_at)"
        " select pipeline, topic, topic_id, cluster_id, 'retired', '2000-01-01'"
        " from topic_incarnation"
    )
    world.execute(
        "insert into partition_offset (incarnation_id, partition_id, start_offset, next_offset)"
        " select incarnation_id, 0, 1, 3 from topic_incarnation where state = 'retired'"
    )
    world.execute(
        "insert into segment (batch_id, incarnation_id, partition_id, from_offset, until_offset,"
        " state, records, matched, unmatched, malformed, first_offset, last_offset)"
        " select %s, incarnation_id, 0, 1, 3, 'live', 2, 0, 2, 0, 1, 2"
        " from topic_incarnation where state = 'retired'",
        (segment["batch_id"],),
    )
    twin = world.segments()[-1]
    found = tally("audit", "--json").document["findings"]
    assert [f["check"] for f in found] == ["topic", "topic"]
    assert "the ledger has it 2 times" in found[0]["detail"]
    assert found[1]["where"].startswith(f"{world.topic}/0 ")
    assert found[1]["detail"] == (
        f"[1, 3) is live in segment {segment['segment_id']} and in segment {twin['segment_id']}"
    )


# --- the recount


def again(
    world: World, meanwhile: Callable[[], None] = lambda: None
) -> tuple[Recount, list[Violation], list[tuple[int, int]]]:
    """Recount; something happens after the ledger and Kafka were asked, before Kafka is read."""
    told: list[tuple[int, int]] = []

    def open_reader() -> AbstractContextManager[Reader]:
        meanwhile()
        return nullcontext(world.reader)

    ctx = world.context(open_reader=open_reader)
    counted, wrong = recount(ctx, world.name, lambda done, total: told.append((done, total)))
    return counted, wrong, told


def falsify(world: World, log_count: str) -> None:
    """Change the result, and what it is the sum of in the ledger."""
    world.execute(f"update `{world.name}` set log_count = {log_count}")
    world.execute(
        "update segment_count join segment using (segment_id) join topic_incarnation using"
        f" (incarnation_id) set log_count = {log_count} where pipeline = %s",
        (world.name,),
    )


def test_a_recount_agrees_with_what_was_committed(tally: Call, world: World) -> None:
    """Several batches, unmatched lines, malformed records and nulls are all compared.

    The limit that stops a batch of malformed records is no limit for the proof of it.
    """
    world.produce([LINE, OTHER, "2017-07-30 14:10:00 INFO fine", "nonsense", None, ""], 0)
    commit(world, *[OTHER] * 4, partition=1)
    commit(world, *[LINE] * 3)
    world.configure(max_malformed_per_batch=1)
    answer = tally("audit", "--recount", "--json").ends(0)
    assert answer.document["recount"] == {
        "complete": True,
        "segments": 3,
        "offsets": 13,
        "records": 13,
        "not_checkable": [],
        "before_start": [],
    }
    assert f"recounting {world.name}: 13 of 13 offsets" in answer.stderr


def test_a_recount_finds_a_wrong_count_on_which_the_whole_ledger_agrees(
    tally: Call, world: World
) -> None:
    """Result, contribution and segment agree with each other; only Kafka differs."""
    commit(world, *[LINE] * 3, *[OTHER] * 2)
    falsify(world, "if(minute(log_time) = 9, 4, 1)")
    tally("audit").ends(0)
    answer = tally("audit", "--recount", "--json").ends(1)
    assert [(f["check"], f["detail"]) for f in answer.document["findings"]] == [
        ("recount", "the ledger says 4, Kafka holds 3"),
        ("recount", "the ledger says 1, Kafka holds 2"),
    ]


MOVED = """
    update segment set until_offset = 4, last_offset = 3, records = 4, matched = 4
     where segment_id = {first};
    update segment set from_offset = 4, first_offset = 4, records = 2, matched = 2
     where segment_id = {second};
    update segment_count set log_count = log_count + 1
     where segment_id = {first} and minute(log_time) = 9;
    update segment_count set log_count = log_count - 1
     where segment_id = {second} and minute(log_time) = 9
"""


def test_a_boundary_that_moved_with_another_line_than_kafkas_is_found(
    tally: Call, world: World
) -> None:
    """Both segments together hold what Kafka holds, and each adds up."""
    commit(world, *[LINE] * 3)
    commit(world, OTHER, LINE, LINE)
    first, second = (row["segment_id"] for row in world.segments())
    for statement in MOVED.split(";"):
        world.execute(statement.format(first=first, second=second))
    tally("audit").ends(0)
    found = tally("audit", "--recount", "--json").ends(1).document["findings"]
    place = f"{world.topic}/0 "
    assert [(f["where"].removeprefix(place), f["detail"]) for f in found] == [
        ("[0, 4) 2017-07-30 14:09:00", "the ledger says 4, Kafka holds 3"),
        ("[0, 4) 2017-07-30 14:10:00", "the ledger says 0, Kafka holds 1"),
        ("[4, 6) 2017-07-30 14:09:00", "the ledger says 1, Kafka holds 2"),
        ("[4, 6) 2017-07-30 14:10:00", "the ledger says 1, Kafka holds 0"),
    ]


FIRST_GONE = """
    delete from segment_count where segment_id = {segment};
    delete from segment where segment_id = {segment};
    delete from batch where batch_id = {batch};
    update partition_offset join topic_incarnation using (incarnation_id) set start_offset = 3
     where pipeline = '{name}' and partition_id = 0;
    update `{name}` set log_count = 2
"""


def test_what_lies_before_the_start_is_named(tally: Call, world: World) -> None:
    """It is no violation: counting may have begun there by another start than today's."""
    batch = commit(world, *[LINE] * 3)
    commit(world, *[LINE] * 2)
    segment, _ = world.segments()
    for statement in FIRST_GONE.split(";"):
        values = {"segment": segment["segment_id"], "batch": batch, "name": world.name}
        world.execute(statement.format(**values))
    answer = tally("audit", "--recount", "--json").ends(0)
    (left,) = answer.document["recount"]["before_start"]
    assert (left["partition"], left["from_offset"], left["until_offset"]) == (0, 0, 3)
    text = tally("audit", "--recount").stdout
    assert f"before the start, and not counted: {world.topic}/0 [0, 3)" in text


def test_a_recount_holds_after_an_adoption_from_the_latest_record(
    tally: Call, world: World
) -> None:
    """Its start is not that of the configuration."""
    commit(world, *[LINE] * 3)
    world.delete_topic()
    world.create_topic(2)
    world.produce([LINE] * 4, 0)
    words = ("topics", "adopt", world.name, world.topic, "--start", "latest")
    tally(*words, "--reason", "a test", "--yes").ends(0)
    commit(world, *[LINE] * 2)
    answer = tally("audit", "--recount", "--json").ends(0)
    (left,) = answer.document["recount"]["before_start"]
    assert (left["partition"], left["from_offset"], left["until_offset"]) == (0, 0, 4)


KAFKAS = "no-time, 8 bytes"
LETTER_CHANGES = {
    "record_offset = 1": [
        ("0", f"the ledger says none, Kafka holds {KAFKAS}"),
        ("1", f"the ledger says {KAFKAS}, Kafka holds none"),
    ],
    "reason = 'no-match'": [("0", f"the ledger says no-match, 8 bytes, Kafka holds {KAFKAS}")],
    "value = 'Nonsense'": [("0", "its bytes are not those that Kafka holds")],
    "value = null": [("0", "its bytes are not those that Kafka holds")],
    "value_bytes = 9": [("0", f"the ledger says no-time, 9 bytes, Kafka holds {KAFKAS}")],
}


@pytest.mark.parametrize(("change", "said"), LETTER_CHANGES.items(), ids=LETTER_CHANGES)
def test_a_dead_letter_that_is_not_kafkas_record_is_found(
    tally: Call, world: World, change: str, said: list[tuple[str, str]]
) -> None:
    """Its reason is changed in the totals by reason, too: the ledger agrees with itself."""
    commit(world, "nonsense", *[LINE] * 2)
    tables = ["dead_letter", *(["dead_letter_total"] if "reason" in change else [])]
    for table in tables:
        of_pipeline = f"where i.pipeline = '{world.name}'"
        joined = f"{table} d join segment s using (segment_id) {GENERATION}"
        world.execute(f"update {joined} set d.{change} {of_pipeline}")
    tally("audit").ends(0)
    found = tally("audit", "--recount", "--json").ends(1).document["findings"]
    place = f"{world.topic}/0 [0, 3) dead letter at offset "
    assert [(f["where"].removeprefix(place), f["detail"]) for f in found] == said


def test_a_recount_counts_continuation_lines_where_it_knows_of_them(
    tally: Call, world: World
) -> None:
    """Commands show them; those of segments of an earlier release are not known, and no fault."""
    pattern = r"(?<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?<level>[A-Z]+)"
    layout = {"pattern": pattern, "time_format": "yyyy-MM-dd HH:mm:ss"}
    world.configure(line_format=layout, continuation_lines="unmatched")
    trace = ["\tat org.example.Shop.sell", "Caused by: x"]
    batch = commit(world, LINE, *trace, LINE.replace("ERROR", "INFO"))
    found = tally("audit", "--recount", "--json").ends(0).document
    assert found["recount"]["complete"]
    shown = tally("show", str(batch), "--json").document
    assert (shown["unmatched"], shown["continuations"]) == (3, 2)
    assert [r["continuations"] for r in shown["ranges"]] == [2]
    assert "0 malformed, 2 left out as continuation lines" in tally("show", str(batch)).stdout
    assert "2 left out as continuation lines" in tally("status").stdout
    *_, row = tally("batches", "--wide").stdout.splitlines()
    assert (row.split()[0], row.split()[-1]) == (str(batch), "2")
    of_pipeline = "join batch using (batch_id) set continuations = {} where pipeline = %s"
    world.execute(f"update segment {of_pipeline.format(1)}", (world.name,))
    found = tally("audit", "--recount", "--json").ends(1).document["findings"]
    assert [f["detail"] for f in found] == ["the ledger says 1 continuations, Kafka holds 2"]
    world.execute(f"update segment {of_pipeline.format('null')}", (world.name,))
    tally("audit", "--recount").ends(0)
    assert tally("show", str(batch), "--json").document["continuations"] is None
    assert "continuation" not in tally("show", str(batch)).stdout


def test_dead_letters_that_were_kept_with_fewer_bytes_are_named(tally: Call, world: World) -> None:
    """What cannot be compared is not called right: a limit that was raised, or bytes taken away."""
    world.configure(dead_letter_max_bytes=4)
    commit(world, "nonsense", LINE)
    tally("audit", "--recount").ends(0)
    world.configure(dead_letter_max_bytes=100)
    answer = tally("audit", "--recount", "--json").ends(0)
    (gap,) = answer.document["recount"]["not_checkable"]
    assert gap["cause"].startswith("1 dead letter kept with fewer bytes")
    assert answer.document["recount"]["records"] == 2


def test_what_was_counted_under_other_rules_is_not_judged_by_todays(
    tally: Call, world: World
) -> None:
    """Nor is its neighbour judged with it: a real miscount is all that is red."""
    commit(world, *[LINE] * 3)
    world.configure(levels=["ERROR", "WARN"])
    counted = tally("audit", "--recount").ends(0).stdout
    assert "nothing of it could be compared with Kafka" in counted
    commit(world, LINE, LINE.replace("ERROR", "WARN"))
    answer = tally("audit", "--recount", "--json").ends(0)
    found = answer.document["recount"]
    assert (found["complete"], found["segments"], found["records"]) == (False, 1, 2)
    (other,) = found["not_checkable"]
    assert (other["from_offset"], other["until_offset"]) == (0, 3)
    assert other["cause"].startswith("counted under other rules than today's")
    falsify(world, "log_count + 1")
    found = tally("audit", "--recount", "--json").ends(1).document["findings"]
    (wrong,) = [one for one in found if one["check"] == "recount"]
    assert wrong["where"].startswith(f"{world.topic}/0 [3, 5)")


def test_an_accepted_loss_that_kafka_holds_is_found(tally: Call, world: World) -> None:
    """As if an operator had accepted, by hand, what is there: the ledger alone agrees."""
    commit(world, *[LINE] * 3)
    world.produce([LINE] * 2, 0)
    lose(world, 3, 5)
    tally("audit").ends(0)
    (found,) = tally("audit", "--recount", "--json").ends(1).document["findings"]
    assert "Kafka holds [3, 5) of it" in found["detail"]


@pytest.mark.parametrize(
    ("table", "said"),
    [("batch", "the row of its batch"), ("partition_offset", "the committed offset is gone")],
)
def test_a_row_that_went_in_spite_of_foreign_keys_is_named(
    tally: Call, world: World, table: str, said: str
) -> None:
    """A plan would begin the partition again, and meet what is counted of it."""
    commit(world, *[LINE] * 3)
    of = "join segment using (incarnation_id)" if table == "partition_offset" else ""
    world.as_root(
        f"use `{world.settings.mysql.database}`",
        "set foreign_key_checks = 0",
        f"delete t from {table} t {of or 'join segment using (batch_id)'} join topic_incarnation i"
        f" using (incarnation_id) where i.pipeline = '{world.name}'",
        "commit",
    )
    found = tally("audit", "--json").ends(1).document["findings"]
    assert said in " ".join(one["detail"] for one in found)
    if of:
        world.produce([LINE], 0)
        tally("plan").ends(4, "is counted from 0 until 3, and its row of the table")


def test_a_servers_limit_of_rows_hides_nothing_from_a_recount(own_world: World) -> None:
    lines = [f"2017-07-30 14:0{n}:59 ERROR one of several minutes" for n in range(4)]
    for _ in range(3):
        commit(own_world, *lines)
    with own_world.global_variable("sql_select_limit", 2):
        counted, wrong, _ = again(own_world)
        assert (counted.segments, counted.records, wrong) == (3, 12, [])
        falsify(own_world, "log_count + 1")
        _, wrong, _ = again(own_world)
    assert len(wrong) == 12


def test_what_retention_took_is_named_and_never_called_right(tally: Call, world: World) -> None:
    for _ in range(2):
        commit(world, *[LINE] * 5)
    world.delete_records(0, before=2)
    answer = tally("audit", "--recount", "--json").ends(0)
    found = answer.document["recount"]
    assert (found["complete"], found["offsets"]) == (False, 5)
    (gone,) = found["not_checkable"]
    assert (gone["from_offset"], gone["until_offset"]) == (0, 5)
    assert gone["cause"] == "Kafka's first offset is now 2"
    assert "not checkable: 5 offsets" in tally("audit", "--recount").stdout


def test_what_changes_while_it_is_recounted_is_no_violation(world: World) -> None:
    """Retention passes by, or a replay commits, between the question and the read."""
    world.produce([LINE] * 5, 0)
    commit(world, *[LINE] * 4, partition=1)
    counted, wrong, _ = again(world, lambda: world.delete_records(0, before=2))
    assert (counted.offsets, wrong) == (4, [])
    assert [unchecked.range.partition.partition for unchecked in counted.not_checkable] == [0]
    replaced = (
        "update segment s join batch b using (batch_id) set s.state = 'superseded',"
        " s.superseded_by = s.segment_id where b.pipeline = %s"
    )
    counted, wrong, told = again(world, lambda: world.execute(replaced, (world.name,)))
    assert (counted.segments, wrong) == (0, [])
    assert ["replaced" in unchecked.cause for unchecked in counted.not_checkable] == [False, True]
    assert told == [(0, 4), (4, 4)]
