"""The tests can fail: each of these guards is taken out of the code, and its test turns red.

What is mutated is the code in memory. The same tests pass on the code as it is: they are tests of
this suite.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from pymysql.constants import CLIENT

from tally import counting, minute, mysql, planning, replay
from tally.blocks import BlockReason
from tally.ledger import commits, positions
from tests.minute import (
    test_clock_jumps,
    test_commit,
    test_odd_answers,
    test_plan,
    test_replay_races,
    test_server_moods,
    test_spark_tasks,
)
from tests.mutation import RED, mutated
from tests.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.stack

Check = Callable[[World, pytest.MonkeyPatch], None]

OTHER_TRANSACTION = "tx._connection.commit(); tx.execute('start transaction')"


def guard(
    name: str, guarded: Callable[..., Any], old: str, new: str, check: Check
) -> "pytest.ParameterSet":
    """One guard, what stands in its place, and the test that must notice."""
    return pytest.param(guarded, old, new, check, id=name)


GUARDS = [
    guard(
        "compare-and-set",
        commits._move_offsets,
        " and o.next_offset = s.from_offset",
        "",
        lambda world, _: test_commit.test_one_partition_that_cannot_move_stops_them_all(world),
    ),
    guard(
        "compare-and-set by what is matched",
        commits._move_offsets,
        "s.until_offset\"\n        \" where s.batch_id = %s and s.state = 'planned'"
        " and o.next_offset = s.from_offset",
        'if(o.next_offset = s.from_offset, s.until_offset, o.next_offset)"\n'
        "        \" where s.batch_id = %s and s.state = 'planned'",
        lambda world, patch: test_server_moods.test_affected_rows_may_mean_changed_or_matched(
            world, CLIENT.FOUND_ROWS, patch
        ),
    ),
    guard(
        "a retry keeps its ends",
        minute._plan,
        "_why_give_up(batch, facts, known) if batch else ()",
        '("its ends have moved",) if batch else ()',
        lambda world, _: test_plan.test_a_plan_is_taken_up_again_with_the_same_ranges(world),
    ),
    guard(
        "offsets in the transaction of the counts",
        commits.commit_batch,
        "_move_offsets(tx, batch)",
        f"_move_offsets(tx, batch); {OTHER_TRANSACTION}",
        lambda world, _: test_commit.test_a_writer_that_forgets_a_count_commits_nothing(world),
    ),
    guard(
        "no DDL in the transaction",
        commits.commit_batch,
        "_insert_contributions(tx, batch, result.contributions)",
        "_insert_contributions(tx, batch, result.contributions); tx.execute('analyze table batch')",
        lambda world, _: test_commit.test_a_writer_that_forgets_a_count_commits_nothing(world),
    ),
    guard(
        "what fails is rolled back",
        mysql.transaction,
        "except BaseException:\n            _roll_back(connection)",
        "except BaseException:\n            _commit(connection)",
        lambda world, _: test_commit.test_a_writer_that_forgets_a_count_commits_nothing(world),
    ),
    guard(
        "a transaction is begun by name",
        mysql.transaction,
        'cursor.execute(f"start transaction {snapshot}")',
        'cursor.execute("select %s", (snapshot,))',
        lambda world, _: (
            test_server_moods.test_with_autocommit_left_on_a_failing_commit_leaves_nothing_behind(
                world, test_server_moods.of_the_session
            )
        ),
    ),
    guard(
        "no connection is replaced",
        mysql.Transaction.execute,
        "with _our_errors(), self._connection.cursor() as cursor:",
        "try:\n"
        "        self._connection.query('select 1')\n"
        "    except pymysql.err.Error:\n"
        "        self._connection.connect()\n"
        "    with _our_errors(), self._connection.cursor() as cursor:",
        lambda world, patch: (
            test_server_moods.test_a_connection_that_is_cut_inside_the_transaction_is_not_replaced(
                world, "_add_to_result", patch
            )
        ),
    ),
    guard(
        "a locked table is not waited for for ever",
        mysql._connect,
        'f" lock_wait_timeout = {settings.lock_wait_timeout_s},"',
        '""',
        lambda world, _: (
            test_server_moods.test_a_table_that_somebody_keeps_locked_is_given_up_in_time(world)
        ),
    ),
    guard(
        "the attempt's number",
        commits._lock_for_commit,
        "now.attempt != batch.attempt",
        "False",
        lambda world, _: test_commit.test_an_older_attempt_is_fenced(world),
    ),
    guard(
        "the attempt's number, not its time",
        commits._lock_for_commit,
        "now.attempt != batch.attempt",
        "now.claimed_at > batch.claimed_at",
        lambda world, patch: (
            test_clock_jumps.test_the_newer_of_two_attempts_is_told_by_its_number_and_not_by_the_clock(
                world, test_clock_jumps.Hand(patch), test_clock_jumps.NONE
            )
        ),
    ),
    guard(
        "an abandoned batch is fenced",
        commits._lock_for_commit,
        "raise abandoned_error(tx, batch.batch_id)",
        "pass",
        lambda world, patch: (
            test_clock_jumps.test_a_clock_that_jumps_forwards_under_an_attempt_lets_it_count_nothing_twice(
                world, test_clock_jumps.Hand(patch)
            )
        ),
    ),
    guard(
        "an attempt of the future is at work",
        minute._why_give_up,
        "clock.now() - batch.claimed_at < patience",
        "abs(clock.now() - batch.claimed_at) < patience",
        lambda world, patch: (
            test_clock_jumps.test_a_clock_that_jumps_backwards_under_an_attempt_takes_nothing_from_it(
                world, test_clock_jumps.Hand(patch)
            )
        ),
    ),
    guard(
        "planners wait for each other",
        positions.lock_pipeline,
        "where pipeline = %s for update",
        "where pipeline = %s",
        test_plan.test_two_later_planners_write_one_plan,
    ),
    guard(
        "a doubtful answer is asked for again",
        minute._plan,
        "(plan.doubtful or given_up) and not believe",
        "False",
        lambda world, patch: (
            test_odd_answers.test_old_metadata_is_asked_for_again_before_it_is_believed(
                test_odd_answers.count_some(world),
                test_odd_answers.a_liar(patch),
                test_odd_answers.shorter,
                block=True,
            )
        ),
    ),
    guard(
        "a hanging transaction is waited for",
        minute._ask_kafka,
        "read_committed=pipeline.reads_committed",
        "read_committed=False",
        lambda world, _: (
            test_odd_answers.test_a_hanging_transaction_holds_back_its_own_partition_alone(world)
        ),
    ),
    guard(
        "a time after the end begins at the end",
        planning.first_offsets,
        "starts[partition] = held.end",
        "starts[partition] = held.earliest",
        lambda world, _: test_odd_answers.test_a_start_time_after_the_last_record_begins_at_the_end(
            world
        ),
    ),
    guard(
        "a start time is looked up",
        minute._starts,
        "kafka.offsets_at(wanted, start)",
        "dict.fromkeys(wanted)",
        lambda world, _: (
            test_odd_answers.test_record_times_out_of_order_leave_nothing_out_behind_a_start_time(
                world
            )
        ),
    ),
    guard(
        "a partition that is left out is named",
        planning._plan_known_topic,
        "blocks.append(missing_partition(partition, known, snapshot))",
        "pass",
        lambda world, patch: (
            test_odd_answers.test_metadata_that_stays_wrong_blocks_and_forgets_nothing(
                test_odd_answers.count_some(world),
                test_odd_answers.a_liar(patch),
                test_odd_answers.without_a_partition,
                (1, BlockReason.PARTITION_MISSING),
            )
        ),
    ),
    guard(
        "columns are named",
        commits._add_to_result,
        "(log_time, log_count)",
        "",
        lambda world, _: (
            test_server_moods.test_a_table_that_is_altered_between_read_and_commit_takes_the_counts(
                world
            )
        ),
    ),
    guard(
        "what fails beside DDL is rolled back",
        mysql.transaction,
        "except BaseException:\n            _roll_back(connection)",
        "except BaseException:\n            _commit(connection)",
        test_server_moods.test_ddl_under_a_commit_waits_for_it_and_commits_nothing_of_it,
    ),
    guard(
        "record times are looked up for each partition",
        replay._within_times,
        "until = next_offset if end is None else min(end, next_offset)",
        "until = start if end is None else min(end, next_offset)",
        lambda world, _: (
            test_odd_answers.test_record_times_out_of_order_give_a_replay_one_range_that_has_all_between(
                world
            )
        ),
    ),
    guard(
        "a replay subtracts",
        commits._add_to_result,
        "{_CHANGES}",
        "{_CHANGES.replace('-c.log_count', '0')}",
        lambda world, _: (
            test_replay_races.test_a_replay_and_a_minute_batch_that_commit_at_once_both_count(
                test_replay_races.count_some(world)
            )
        ),
    ),
    guard(
        "a replay takes the place of what is live",
        commits.commit_batch,
        "take_over(tx, batch)",
        "pass",
        lambda world, _: test_replay_races.test_of_two_replays_that_commit_at_once_one_is_overtaken(
            test_replay_races.count_some(world)
        ),
    ),
    guard(
        "a replay is one transaction",
        commits.commit_batch,
        "take_over(tx, batch)",
        f"take_over(tx, batch); {OTHER_TRANSACTION}",
        lambda world, patch: (
            test_replay_races.test_a_replay_that_fails_half_way_leaves_the_old_counts(
                test_replay_races.count_some(world), "_take_from_result", patch
            )
        ),
    ),
    guard(
        "no count goes below zero",
        commits._take_from_result,
        'f" where `{table}`.log_count + `_fewer`.log_count >= 0"',
        '""',
        lambda world, _: (
            test_replay_races.test_a_replay_that_would_leave_a_negative_count_is_refused_whole(
                test_replay_races.count_some(world)
            )
        ),
    ),
]


@pytest.mark.parametrize(("guarded", "old", "new", "check"), GUARDS)
def test_without_its_guard_a_test_turns_red(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    guarded: Callable[..., Any],
    old: str,
    new: str,
    check: Check,
) -> None:
    """One guard is taken out; the test that was written for it must not pass any more."""
    monkeypatch.setattr(minute, "DOUBT_PAUSE_S", 0.01)
    with mutated(guarded, old, new), pytest.raises(RED):
        check(world, monkeypatch)


@pytest.mark.spark
def test_without_fixed_ends_a_task_that_is_run_again_turns_its_test_red(
    world: World, spark: "SparkSession"
) -> None:
    """Were the ends asked of Kafka at the read, another attempt would read other records."""
    ends = '.option("endingOffsets", json.dumps(ends))'
    with mutated(counting._read, ends, '.option("endingOffsets", "latest")'), pytest.raises(RED):
        test_spark_tasks.test_tasks_that_are_killed_are_run_again_and_count_once(world, spark)
