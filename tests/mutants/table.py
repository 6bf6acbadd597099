"""The guards of the count, each with the change that removes it and the tests that notice."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.mutants.anchors import Anchor, replace_in


@dataclass(frozen=True, kw_only=True, slots=True)
class Mutant:
    """One guard and its removal."""

    guard: str
    """What the guard ensures."""
    where: str
    """The symbol that contains it, ``module:name`` (see :mod:`tests.mutants.anchors`)."""
    before: str
    """The code with the guard; found exactly once in the symbol's source."""
    after: str
    """The code without the guard."""
    tests: tuple[str, ...]
    """The tests of which at least one must fail."""
    also: tuple[tuple[str, str, str], ...] = ()
    """Further changes, where, before and after: a second guard behind the first one."""

    @property
    def changes(self) -> tuple[tuple[str, str, str], ...]:
        """All changes: where, before and after."""
        return ((self.where, self.before, self.after), *self.also)

    def apply(self, source: Path) -> None:
        """Take the guard out of a copy of the code."""
        for where, before, after in self.changes:
            anchor = Anchor.parse(where)
            file = anchor.file(source)
            text = replace_in(file.read_text(encoding="utf-8"), anchor, before, after)
            file.write_text(text, encoding="utf-8")


COMMIT: Final = "tests/minute/test_commit.py"
MINUTE: Final = "tests/minute/test_minute.py"
PLAN: Final = "tests/minute/test_plan.py"
REPLAY: Final = "tests/minute/test_replay.py"
COMPLETE: Final = "tests/minute/test_complete.py"
ALERTS: Final = "tests/minute/test_alerts.py"
HOURS: Final = "tests/airflow/test_hours.py"
LINES: Final = "tests/minute/test_lines.py"
CONSOLE: Final = "tests/airflow/test_console.py"
CONCURRENCY: Final = "tests/minute/test_concurrency.py"
REPLAY_DAG: Final = "tests/airflow/test_replay_dag.py"
LOSSES_DAG: Final = "tests/airflow/test_losses_dag.py"
LOSSES: Final = "tests/minute/test_losses.py"
RACES: Final = "tests/minute/test_replay_races.py"
TASKS: Final = "tests/minute/test_spark_tasks.py"
FOUND: Final = "tests/properties/test_found.py"
PRUNE: Final = "tests/minute/test_prune.py"
RATIO: Final = "tests/minute/test_malformed_ratio.py"
PROVING: Final = "tests/cli/test_audit.py"
UPGRADE: Final = "tests/migrations/test_upgrade.py"
ERASE: Final = "tests/minute/test_erase.py"
LABELS: Final = "tests/minute/test_labels.py"
TASK_COUNTING: Final = "tests/spark/test_task_counting.py"
LINE_COLUMNS: Final = "tests/spark/test_line_columns.py"
FILES: Final = "tests/minute/test_kept_files.py"
DELIVERIES: Final = "tests/minute/test_deliveries.py"
ROWS: Final = "tests/minute/test_kept_rows.py"
PUBLISH: Final = "tests/unit/test_publish.py"
RESTORE: Final = "tests/minute/test_restore.py"

MUTANTS: Final = (
    # --- planning
    Mutant(
        guard="an open batch is resumed, not planned again",
        where="tally.ledger.batches:find_open_ingest",
        before='"where open_ingest = %s or',
        after="\"where open_ingest = concat(%s, '?') or",
        tests=(f"{PLAN}::test_a_plan_is_resumed_with_the_same_ranges",),
    ),
    Mutant(
        guard="planners of one pipeline wait for each other",
        where="tally.ledger.positions:_locked_table",
        before="from pipeline where pipeline = %s for update",
        after="from pipeline where pipeline = %s",
        tests=(f"{PLAN}::test_two_later_planners_write_one_plan",),
    ),
    Mutant(
        guard="an answer that would block is asked for again",
        where="tally.counting.plan:_plan",
        before="    if is_restored or (is_doubtful and not is_believed):",
        after="    if is_restored:",
        tests=(f"{PLAN}::test_old_metadata_is_asked_for_again_before_it_is_believed",),
    ),
    Mutant(
        guard="a start time is looked up",
        where="tally.counting.plan:_starts",
        before="ctx.kafka.offsets_at(wanted, start)",
        after="dict.fromkeys(wanted)",
        tests=(f"{PLAN}::test_record_times_out_of_order_leave_nothing_out_behind_a_start_time",),
    ),
    Mutant(
        guard="an accepted truncation is in force until counting has passed it",
        where="tally.ledger.positions:_UNSETTLED_LOSSES",
        before=" and l.cause = 'truncated' and l.until_offset = o.next_offset)",
        after=" and l.cause = 'truncated')",
        tests=(
            f"{LOSSES}::test_an_end_behind_the_ledger_blocks_until_it_is_accepted_and_has_grown",
        ),
    ),
    Mutant(
        guard="a loss is accepted as it was shown, its cause included",
        where="tally.ledger.decisions:decide_losses",
        before="state = 'open' and cause = %s and",
        after="state = 'open' and %s <> '' and",
        tests=(f"{LOSSES}::test_a_loss_that_has_become_another_is_another_decision",),
    ),
    Mutant(
        guard="a loss is decided as it was shown, another operator's decision included",
        where="tally.ledger.decisions:decide_losses",
        before="decided_at <=> %s",
        after="%s <=> %s",
        tests=(f"{LOSSES_DAG}::test_a_loss_that_is_kept_blocked_just_before_is_not_decided",),
        also=(
            (
                "tally.ledger.decisions:decide_losses",
                "(loss.decided_at, loss.range",
                "(1, 1, loss.range",
            ),
        ),
    ),
    Mutant(
        guard="adopting waits for the commit that is under way",
        where="tally.ledger.decisions:_accept_planned_as_lost",
        before=" having planned_until > o.next_offset for update",
        after=" having planned_until > o.next_offset",
        tests=(f"{CONCURRENCY}::test_adopting_waits_for_the_commit_that_is_under_way",),
    ),
    Mutant(
        guard="what was planned and abandoned is lost by an adoption, also after a prune",
        where="tally.ledger.folding:forget_history",
        before=" and s.until_offset <= o.next_offset and",
        after=" and",
        tests=(f"{CONCURRENCY}::test_what_prune_forgets_is_still_lost_by_an_adoption",),
    ),
    Mutant(
        guard="an answer of Kafka that the ledger has overtaken shows no truncation",
        where="tally.counting.plan:_plan",
        before="believe and known == asked.known",
        after="believe",
        tests=(f"{CONCURRENCY}::test_what_was_counted_since_kafka_was_asked_is_no_truncation",),
    ),
    Mutant(
        guard="a topic that is new since Kafka was asked begins where it is configured",
        where="tally.counting.plan:_plan",
        before="if is_restored or (is_doubtful",
        after="if (is_doubtful",
        tests=(
            f"{CONCURRENCY}::test_a_topic_that_is_new_after_a_restore_begins_where_it_is_configured",
        ),
    ),
    Mutant(
        guard="a batch of a retired generation is abandoned",
        where="tally.planning.ingest:offset_conflicts",
        before="if topic is not None and not segment.is_same(topic):",
        after="if topic is None and segment.is_same(topic):",
        tests=(f"{CONCURRENCY}::test_a_batch_of_a_retired_generation_holds_up_no_other_topic",),
    ),
    # --- reading
    Mutant(
        guard="only a hole that was missing and accepted may be missing",
        where="tally.ledger.batches:ACCEPTED_HOLE",
        before="and l.cause = 'missing' and l.state = 'accepted'",
        after="and l.state = 'accepted'",
        tests=(f"{REPLAY}::test_a_hole_in_a_loss_that_came_back_is_no_accepted_one",),
    ),
    Mutant(
        guard="only a hole that an operator has accepted may be missing",
        where="tally.ledger.batches:ACCEPTED_HOLE",
        before="and l.cause = 'missing' and l.state = 'accepted'",
        after="and l.cause = 'missing'",
        tests=(f"{REPLAY}::test_a_hole_that_was_counted_as_sparse_is_no_accepted_one",),
    ),
    Mutant(
        guard="of a sparse range Kafka must still hold all after the read",
        where="tally.counting.checks:check_still_served",
        before="still_held=pipeline.is_sparse",
        after="still_held=False",
        tests=(
            f"{CONCURRENCY}::test_records_of_a_range_with_holes_that_expire_behind_a_read_are_not_believed",
        ),
    ),
    Mutant(
        guard="Spark is told that records which are gone are an error",
        where="tally.spark.session:reader_options",
        before='"failOnDataLoss": "true"',
        after='"failOnDataLoss": "false"',
        tests=("tests/unit/test_settings.py::test_records_that_are_gone_are_an_error_of_sparks",),
    ),
    Mutant(
        guard="a retry reads the planned end, not the current end",
        where="tally.counting.batch:count_request",
        before="        ranges=batch.ranges,\n",
        after="        ranges=[\n"
        "            OffsetRange(\n"
        "                partition=s.range.partition,\n"
        "                from_offset=s.range.from_offset,\n"
        "                until_offset=ctx.kafka.snapshot(list(pipeline.topics))\n"
        "                .topics[s.range.partition.topic]\n"
        "                .partitions[s.range.partition.partition]\n"
        "                .end,\n"
        "            )\n"
        "            for s in batch.segments\n"
        "        ],\n",
        tests=(
            f"{TASKS}::test_tasks_that_are_killed_are_run_again_and_count_once",
            f"{MINUTE}::test_a_backlog_is_counted_batch_by_batch",
        ),
    ),
    Mutant(
        guard="a task that runs again reads to the same end",
        where="tally.spark.reading:read_ranges",
        before='.option("endingOffsets", json.dumps(ends))',
        after='.option("endingOffsets", "latest")',
        tests=(f"{TASKS}::test_tasks_that_are_killed_are_run_again_and_count_once",),
    ),
    Mutant(
        guard="small ranges that are read together end where they were planned to",
        where="tally.kafka.records:_whole",
        before="if is_record and offset < end:",
        after="if is_record:",
        tests=("tests/unit/test_kafka.py::test_a_small_range_that_is_not_whole_is_left_out",),
    ),
    Mutant(
        guard="of a small range all is read, or nothing",
        where="tally.kafka.records:_whole",
        before="is_odd = offset < end ",
        after="is_odd = False ",
        also=(
            (
                "tally.kafka.records:_whole",
                "if is_odd or offset >= end - is_record:",
                "if is_odd or not is_record or offset >= end - 1:",
            ),
        ),
        tests=("tests/unit/test_kafka.py::test_a_small_range_that_is_not_whole_is_left_out",),
    ),
    Mutant(
        guard="damaged bytes of a small range are not left to a reader that checks none",
        where="tally.kafka.records:_whole",
        before="if is_damaged and offset < end:",
        after="if False:",
        tests=("tests/unit/test_kafka.py::test_damaged_bytes_of_a_small_range_are_an_error",),
    ),
    # --- by partition
    Mutant(
        guard="a partition that commits by itself is read by one task",
        where="tally.spark.reading:read_ranges",
        before="if key.lower() not in DIVIDING}",
        after="if key}",
        tests=(f"{DELIVERIES}::test_a_partition_is_read_by_one_task",),
    ),
    Mutant(
        guard="a task has records of one partition",
        where="tally.spark.task_groups:add_up",
        before="        if len(found) > 1:",
        after="        if len(found) > len(batch):",
        tests=(f"{DELIVERIES}::test_a_task_with_two_partitions_is_refused",),
    ),
    Mutant(
        guard="a task has batches of records of one partition",
        where="tally.spark.task_groups:add_up",
        before="        found |= {",
        after="        found = {",
        tests=(f"{DELIVERIES}::test_a_task_with_two_partitions_is_refused",),
    ),
    Mutant(
        guard="there are as many tasks as ranges",
        where="tally.spark.task_counting:outcome_of_each",
        before="    if len(outcomes) != len(task.requests) or len(silent) != len(unknown):",
        after="    if not task.requests:",
        tests=(TASK_COUNTING,),
    ),
    Mutant(
        guard="a task that failed before it knew its partition is no empty one",
        where="tally.spark.task_counting:outcome_of_each",
        before="        if outcome.error is not None:",
        after="        if isinstance(outcome.error, RuntimeError):",
        tests=(TASK_COUNTING,),
    ),
    Mutant(
        guard="malformed records are committed with their dead letters",
        where="tally.spark.task_counting:CountWork.of_range",
        before="            if gathering.malformed and not self.first_reads:",
        after="            if gathering is None:",
        tests=(TASK_COUNTING,),
    ),
    Mutant(
        guard="a copy of a task that has committed is no other attempt",
        where="tally.counting.batch:_committed",
        before=" or now.claim != batch.claim:",
        after=" or now.attempt > 0:",
        tests=(f"{DELIVERIES}::test_a_task_that_spark_repeats_counts_and_keeps_each_line_once",),
    ),
    Mutant(
        guard="a task commits nothing of an input that was cut",
        where="tally.spark.task_groups:without_end",
        before="    if not is_whole:",
        after="    if is_whole is None:",
        tests=(TASK_COUNTING,),
    ),
    Mutant(
        guard="both reads of a task find the same",
        where="tally.spark.task_counting:_check_same",
        before="    if first != second:",
        after="    if first.records < 0:",
        tests=(TASK_COUNTING,),
    ),
    Mutant(
        guard="a partition that Spark cannot read holds up no other",
        where="tally.counting.batch:_count",
        before="            if len(todo) > 1:",
        after="            if not todo:",
        tests=(f"{DELIVERIES}::test_a_partition_that_spark_cannot_read_holds_up_no_other",),
    ),
    Mutant(
        guard="executors with another version commit nothing",
        where="tally.counting.batch:commit_in_task",
        before="    if version != __version__:",
        after="    if not version:",
        tests=(f"{DELIVERIES}::test_executors_with_another_version_commit_nothing",),
    ),
    Mutant(
        guard="a partition that fails ends its attempt",
        where="tally.counting.batch:_outcome",
        before="        _end_attempt(ctx, batch, outcome)\n",
        after="",
        tests=(f"{DELIVERIES}::test_a_partition_that_fails_keeps_no_other_from_its_commit",),
    ),
    Mutant(
        guard="what was read is still what was planned",
        where="tally.counting.batch:commit_counts",
        before="    check_still_served(ctx, batch)\n",
        after="",
        tests=(f"{MINUTE}::test_a_topic_recreated_under_the_read_is_data_loss",),
    ),
    # --- lines
    Mutant(
        guard="a recount judges each record by itself",
        where="tally.spark.line:Line.key",
        before="if self.each or self.pipeline.leaves_continuations:",
        after="if self.pipeline.leaves_continuations:",
        tests=(f"{LINE_COLUMNS}::test_records_judged_one_by_one_are_counted_as_in_groups",),
    ),
    Mutant(
        guard="a plan takes no table that the ledger does not know",
        where="tally.ledger.positions:lock_pipeline",
        before="        check_unowned(tx, pipeline, result_table)\n",
        after="",
        tests=(f"{LABELS}::test_an_unrelated_table_is_not_taken",),
    ),
    Mutant(
        guard="a migration takes no table that the ledger does not know",
        where="tally.ledger.table_changes:check_preparation",
        before="            tables.check_unowned(tx, pipeline.name, pipeline.table)\n",
        after="            pass\n",
        tests=(f"{LABELS}::test_an_unrelated_table_is_not_taken",),
    ),
    Mutant(
        guard="no table with another key becomes a result table",
        where="tally.ledger.schema:why_no_counts",
        before="        shape.unique.keys() != {PRIMARY}\n        or shape.key",
        after="        shape.key",
        tests=(f"{LABELS}::test_an_unrelated_table_is_not_taken",),
    ),
    Mutant(
        guard="a label column that was there is made exact",
        where="tally.ledger.table_changes:_widen",
        before="        or (there[label.column].chars, there[label.column].collation) != "
        "(label.chars, shape.exact)\n",
        after="        or there[label.column].chars != label.chars\n",
        tests=(f"{LABELS}::test_a_label_that_was_there_is_made_exact",),
    ),
    Mutant(
        guard="no label is added under an index that joins its rows",
        where="tally.ledger.table_changes:_check_indexes",
        before="        if name != PRIMARY and not set(key) <= set(parts):\n",
        after="        if not parts:\n",
        tests=(f"{LABELS}::test_no_label_is_added_under_an_index_that_joins_its_rows",),
    ),
    Mutant(
        guard="another result table is refused before it is made",
        where="tally.ledger.table_changes:check_preparation",
        before="            tables.check_target(before, pipeline)\n",
        after="            pass\n",
        tests=(f"{LABELS}::test_another_result_table_is_refused_before_it_is_made",),
    ),
    Mutant(
        guard="the audit looks at every index by which rows are one",
        where="tally.ledger.schema:faults_of_keys",
        before="not all(set(keys) <= set(of) for of in shape.joining.values())",
        after="not set(keys) <= set(shape.key)",
        tests=(f"{LABELS}::test_the_audit_sees_a_table_in_which_counts_would_meet",),
    ),
    # --- committing
    Mutant(
        guard="what fails is rolled back",
        where="tally.mysql.transactions:Database.transaction",
        before="            except BaseException:\n"
        "                _roll_back(connection)\n"
        "                raise\n",
        after="            except BaseException:\n"
        "                _commit(connection)\n"
        "                raise\n",
        tests=(
            f"{COMMIT}::test_what_a_writer_forgets_is_found_before_the_commit",
            f"{COMMIT}::test_a_table_that_is_altered_under_a_commit_is_altered_behind_it",
        ),
    ),
    Mutant(
        guard="a transaction is begun by name",
        where="tally.mysql.transactions:Database.transaction",
        before='                cursor.execute(f"start transaction {snapshot}")\n',
        after="                assert snapshot\n",
        tests=(f"{COMMIT}::test_with_autocommit_left_on_a_failing_commit_leaves_nothing_behind",),
    ),
    Mutant(
        guard="columns of the result are named",
        where="tally.ledger.contributions:add_to_result",
        before='f"insert into `{tables.result}` ({listed(tables.columns)})"',
        after='f"insert into `{tables.result}`"',
        tests=(f"{COMMIT}::test_a_table_that_is_altered_under_a_commit_is_altered_behind_it",),
    ),
    Mutant(
        guard="no DDL in the transaction, which would commit it",
        where="tally.counting.commit:commit_in",
        before="    contributions.insert_contributions(tx, tables, chain(watched, rows))\n",
        after="    contributions.insert_contributions(tx, tables, chain(watched, rows))\n"
        "    tx.execute('analyze table batch')\n",
        tests=(f"{COMMIT}::test_what_a_writer_forgets_is_found_before_the_commit",),
    ),
    Mutant(
        guard="a trigger that changes what is written is seen",
        where="tally.counting.commit:commit_in",
        before="    if contributions.surplus(tx, tables, batch.pipeline, watched) != before:\n",
        after="    if before is None:\n",
        tests=(f"{COMMIT}::test_a_trigger_that_changes_what_is_written_is_refused",),
    ),
    Mutant(
        guard="offsets move by what has changed, not by what was found",
        where="tally.ledger.commit:move_offsets",
        before="set o.next_offset = s.until_offset,",
        after="set o.next_offset = if(o.next_offset = s.from_offset, s.until_offset, o.next_offset),",
        also=(
            (
                "tally.ledger.commit:move_offsets",
                "where s.batch_id = %s and s.state = 'planned' and o.next_offset = s.from_offset",
                "where s.batch_id = %s and s.state = 'planned'",
            ),
        ),
        tests=(f"{COMMIT}::test_one_partition_that_cannot_move_stops_them_all",),
    ),
    Mutant(
        guard="offsets move only from where the batch began",
        where="tally.ledger.commit:move_offsets",
        before="where s.batch_id = %s and s.state = 'planned' and o.next_offset = s.from_offset",
        after="where s.batch_id = %s and s.state = 'planned'",
        tests=(f"{COMMIT}::test_one_partition_that_cannot_move_stops_them_all", FOUND),
    ),
    Mutant(
        guard="all partitions move, or none",
        where="tally.ledger.commit:move_offsets",
        before="    if moved != len(batch.segments):",
        after="    if not moved:",
        tests=(f"{COMMIT}::test_one_partition_that_cannot_move_stops_them_all",),
    ),
    Mutant(
        guard="an older attempt is fenced",
        where="tally.ledger.commit:lock_attempt",
        before="    if now.claim != batch.claim or",
        after="    if now.claim < batch.claim or",
        tests=(
            f"{CONCURRENCY}::test_the_newer_of_two_attempts_is_told_by_its_number_and_not_by_the_clock",
        ),
    ),
    Mutant(
        guard="an attempt of a ledger that was restored is fenced",
        where="tally.ledger.commit:lock_attempt",
        before="    if now.claim != batch.claim or",
        after="    if now.attempt != batch.attempt or",
        tests=(
            f"{RESTORE}::test_a_commit_is_of_the_batch_the_claim_and_the_ranges_that_were_read",
        ),
    ),
    Mutant(
        guard="a batch is known by more than its number",
        where="tally.ledger.commit:lock_attempt",
        before="    if _identity(now) != _identity(batch):",
        after="    if now.batch_id != batch.batch_id:",
        tests=(
            f"{RESTORE}::test_a_commit_is_of_the_batch_the_claim_and_the_ranges_that_were_read",
        ),
    ),
    Mutant(
        guard="what becomes live is what was read",
        where="tally.ledger.commit:lock_attempt",
        before=" or _planned(now) != _planned(batch):",
        after=":",
        tests=(
            f"{RESTORE}::test_a_commit_is_of_the_batch_the_claim_and_the_ranges_that_were_read",
        ),
    ),
    Mutant(
        guard="a batch commits once",
        where="tally.ledger.commit:lock_attempt",
        before="    if now.state is BatchState.COMMITTED:\n        return False\n",
        after="",
        tests=(f"{COMMIT}::test_a_batch_commits_once",),
    ),
    Mutant(
        guard="an abandoned batch is fenced",
        where="tally.ledger.commit:lock_attempt",
        before="    if now.state is BatchState.ABANDONED:\n"
        "        raise abandoned_error(tx, batch.batch_id)\n"
        "    if now.claim",
        after="    if now.claim",
        tests=(f"{COMMIT}::test_an_abandoned_batch_is_fenced",),
    ),
    Mutant(
        guard="offsets and results commit in one transaction",
        where="tally.counting.commit:commit_in",
        before="        steps.move_offsets(tx, batch)\n",
        after="        steps.move_offsets(tx, batch)\n        tx._connection.commit()\n",
        tests=(f"{COMMIT}::test_what_a_writer_forgets_is_found_before_the_commit",),
    ),
    Mutant(
        guard="no chunk of dead letters commits alone",
        where="tally.mysql.transactions:Transaction.insert_many",
        before="                inserted += sent.result()\n",
        after="                inserted += sent.result()\n"
        "                if 'dead_letter' in statement:\n"
        "                    self._connection.commit()\n",
        tests=(f"{COMMIT}::test_a_commit_that_fails_after_many_chunks_leaves_none_of_them",),
    ),
    Mutant(
        guard="no chunk of counts commits alone",
        where="tally.mysql.transactions:Transaction.insert_many",
        before="                inserted += sent.result()\n",
        after="                inserted += sent.result()\n"
        "                if '_count`' in statement:\n"
        "                    self._connection.commit()\n",
        tests=(f"{COMMIT}::test_a_commit_that_fails_after_many_chunks_leaves_none_of_them",),
    ),
    Mutant(
        guard="what was written is what was counted",
        where="tally.counting.commit:commit_in",
        before="    steps.check_written(tx, tables, batch.batch_id)\n",
        after="",
        tests=(f"{COMMIT}::test_what_a_writer_forgets_is_found_before_the_commit",),
    ),
    Mutant(
        guard="after a lost answer to COMMIT the ledger is asked, not told again",
        where="tally.mysql.transactions:Database.run_answered",
        before="                if outcome is not None:\n                    return outcome\n",
        after="                return True\n",
        tests=(f"{COMMIT}::test_the_answer_to_commit_is_lost",),
    ),
    Mutant(
        guard="a COMMIT that was applied is not taken for a failure",
        where="tally.mysql.transactions:Database.run_answered",
        before="                if outcome is not None:\n                    return outcome\n",
        after="                raise\n",
        tests=(f"{COMMIT}::test_the_answer_to_commit_is_lost",),
    ),
    Mutant(
        guard="a deadlock runs the whole transaction again",
        where="tally.mysql.transactions:Database.run",
        before="                if attempt == TRANSACTION_TRIES:\n",
        after="                if attempt:\n",
        tests=(f"{COMMIT}::test_a_deadlock_runs_the_transaction_again",),
    ),
    Mutant(
        guard="no connection is replaced inside a transaction",
        where="tally.mysql.transactions:Transaction._cursor",
        before="            with self._connection.cursor(kind) as cursor:\n",
        after="            try:\n"
        "                self._connection.query('select 1')\n"
        "            except pymysql.err.Error:\n"
        "                self._connection.connect()\n"
        "            with self._connection.cursor(kind) as cursor:\n",
        tests=(f"{COMMIT}::test_a_connection_that_is_cut_inside_the_transaction_is_not_replaced",),
    ),
    Mutant(
        guard="dead letters are as many as malformed records",
        where="tally.ledger.commit:check_written",
        before='        "   or s.malformed <> written_malformed or',
        after='        "   or',
        tests=(f"{COMMIT}::test_each_malformed_record_has_its_dead_letter_before_the_commit",),
    ),
    Mutant(
        guard="dead letters by reason are as many as malformed records",
        where="tally.ledger.commit:check_written",
        before=" or s.malformed <> totalled_malformed",
        after="",
        tests=(f"{COMMIT}::test_each_malformed_record_has_its_dead_letter_before_the_commit",),
    ),
    # --- complete minutes
    Mutant(
        guard="a complete minute that a batch changes is amended",
        where="tally.counting.commit:commit_in",
        before="    progress.amend(tx, tables, batch)\n",
        after="",
        tests=(f"{COMPLETE}::test_what_changes_a_complete_minute_amends_it",),
    ),
    Mutant(
        guard="a partition is counted through what was seen once all before it is counted",
        where="tally.ledger.commit:move_offsets",
        before="if(s.until_offset >= o.seen_end, o.seen_at",
        after="if(true, o.seen_at",
        tests=(f"{COMPLETE}::test_a_backlog_is_counted_through_where_its_end_was_first_seen",),
    ),
    Mutant(
        guard="a partition with new records is not counted through the plan",
        where="tally.ledger.progress:_SEE",
        before="if(o.next_offset >= seen.ends, %s",
        after="if(true, %s",
        tests=(f"{COMPLETE}::test_all_is_counted_through_the_moment_before_the_plan",),
    ),
    Mutant(
        guard="a pipeline is counted through the least of its partitions",
        where="tally.ledger.progress:advance",
        before='if not least["is_known"] or',
        after="if",
        tests=(f"{COMPLETE}::test_what_is_new_is_counted_through_no_moment",),
    ),
    Mutant(
        guard="what is blocked shows no end",
        where="tally.planning.completeness:_readable",
        before="if not blocked & {(topic, None), (topic, number)}:",
        after="if not blocked & {topic}:",
        tests=(f"{COMPLETE}::test_what_is_not_read_keeps_minutes_open",),
    ),
    Mutant(
        guard="an open transaction keeps minutes open",
        where="tally.planning.completeness:newly_seen",
        before="(partition, held.written_end)",
        after="(partition, held.end)",
        tests=(f"{COMPLETE}::test_what_is_not_read_keeps_minutes_open",),
    ),
    Mutant(
        guard="what is complete stays so under a longer lateness",
        where="tally.ledger.progress:_ADVANCE",
        before="greatest(coalesce(complete_before, %s), %s)",
        after="if(%s is null, null, %s)",
        tests=(f"{COMPLETE}::test_a_minute_is_open_until_lines_in_time_are_counted",),
    ),
    Mutant(
        guard="an hour is announced once",
        where="tally.airflow.complete:to_announce",
        before="return announcement(ctx, pipeline, before)",
        after="return announcement(ctx, pipeline, None)",
        tests=(f"{HOURS}::test_each_complete_hour_is_announced_once_and_in_order",),
    ),
    Mutant(
        guard="a change of an hour is announced once",
        where="tally.reading.hours:announcement",
        before="first, (before.amended_at, before.amended_hour), HOURS_MAX",
        after="first, (before.amended_at.replace(year=1970), before.amended_hour), HOURS_MAX",
        tests=(f"{HOURS}::test_each_complete_hour_is_announced_once_and_in_order",),
    ),
    Mutant(
        guard="a minute is judged once",
        where="tally.ledger.alerts:judge",
        before="first = max(judged, until - LONGEST)",
        after="first = until - LONGEST",
        tests=(f"{ALERTS}::test_a_minute_that_breaks_a_limit_raises_an_alert_until_one_does_not",),
    ),
    Mutant(
        guard="what has changed since is not noted as notified",
        where="tally.ledger.alerts:notified",
        before=" and changed_at = %s",
        after=" and %s is not null",
        tests=(f"{ALERTS}::test_what_has_changed_since_is_not_noted_as_notified",),
    ),
    # --- showing what is behind a count
    Mutant(
        guard="records of a topic that was created again prove no count",
        where="tally.reading.lines:_Search",
        before=" or topic.topic_id != part.topic_id or",
        after=" or",
        tests=(f"{LINES}::test_what_kafka_no_longer_has_is_said",),
    ),
    Mutant(
        guard="lines that were not all read contradict no count",
        where="tally.reading.lines:lines",
        before="Verdict.UNKNOWN if search.doubts and not is_more else Verdict.DIFFERENT",
        after="Verdict.DIFFERENT",
        tests=(f"{LINES}::test_not_more_is_read_than_was_asked_for",),
    ),
    Mutant(
        guard="lines are for those who have a right to them",
        where="tally.airflow.console.line_pages:lines_page",
        before="if not asked.may_read_lines:",
        after="if False:",
        tests=(f"{CONSOLE}::test_lines_are_for_those_who_have_a_right_to_them",),
    ),
    Mutant(
        guard="the right to one pipeline shows no record of another's topic",
        where="tally.reading.records:record_at",
        before="if not is_known:",
        after="if False:",
        tests=(f"{CONSOLE}::test_lines_are_for_those_who_have_a_right_to_them",),
    ),
    Mutant(
        guard="bytes of dead letters are for those who may read lines",
        where="tally.airflow.console.line_pages:dead_letters_page",
        before="of if asked.may_read_lines else",
        after="of if True else",
        tests=(f"{CONSOLE}::test_dead_letters_have_no_bytes_for_those_who_only_view",),
    ),
    Mutant(
        guard="the audit log says who was shown lines",
        where="tally.airflow.console.app:_answer",
        before="if asked.may_read_lines and template in SHOW_LINES:",
        after="if False:",
        tests=(f"{CONSOLE}::test_lines_are_for_those_who_have_a_right_to_them",),
    ),
    Mutant(
        guard="a batch stores no text of dead letters that were erased before",
        where="tally.counting.commit:commit_in",
        before="erase_letters_of(tx, batch.batch_id)",
        after="pass",
        tests=(f"{ERASE}::test_what_is_erased_stays_away_and_the_counts_stay_proved",),
    ),
    Mutant(
        guard="lines that were erased before are shown without their text",
        where="tally.deliveries.kept_lines:KeptLines.show",
        before="store.erase(one, first, until)",
        after="pass",
        tests=(f"{ERASE}::test_a_batch_that_is_on_its_way_stores_no_erased_text",),
    ),
    Mutant(
        guard="what is redacted is not stored",
        where="tally.spark.grouping:Grouping._stored",
        before='redacted(F.col("value"), self.pipeline.redaction)',
        after='F.col("value")',
        tests=(f"{DELIVERIES}::test_what_is_redacted_is_stored_nowhere",),
    ),
    Mutant(
        guard="nor is it the value of a label",
        where="tally.spark.line:Line._redacted",
        before="self.pipeline.redaction",
        after='""',
        tests=(f"{DELIVERIES}::test_what_is_redacted_is_stored_nowhere",),
    ),
    Mutant(
        guard="nor is what a pattern sees of a longer one",
        where="tally.spark.line:Line._redacted",
        before="self.is_cut(name)",
        after="F.lit(False)",
        tests=(f"{DELIVERIES}::test_what_is_redacted_is_stored_nowhere",),
    ),
    Mutant(
        guard="lines are found by the value that their label has in the result",
        where="tally.aggregates.judgement:Fields.labels",
        before="redacted(text, never)",
        after="text",
        tests=(f"{LINES}::test_lines_are_found_by_a_redacted_label",),
    ),
    Mutant(
        guard="of a batch a line that was not counted is found",
        where="tally.ledger.parts:parts_of",
        before='else "left join"',
        after='else "join"',
        tests=(f"{LINES}::test_a_line_that_was_not_counted_is_found",),
    ),
    Mutant(
        guard="a commit under an older configuration completes nothing",
        where="tally.ledger.progress:advance",
        before="if last != digest and not plans:",
        after="if False:",
        tests=(f"{COMPLETE}::test_a_commit_under_an_older_configuration_completes_nothing",),
    ),
    Mutant(
        guard="hours of another zone than the plan's are not announced",
        where="tally.reading.hours:announcement",
        before="known.complete_before is None or known.time_zone != zone",
        after="known.complete_before is None",
        tests=("tests/minute/test_hours.py::test_hours_are_of_a_zones_clock",),
    ),
    Mutant(
        guard="a topic on another cluster is not adopted by a button",
        where="tally.airflow.console.steering_pages:decide_page",
        before="changed[topic] is BlockReason.CLUSTER_CHANGED",
        after="False",
        tests=(f"{CONSOLE}::test_a_topic_on_another_cluster_is_not_adopted_by_a_button",),
    ),
    Mutant(
        guard="the right to one pipeline abandons no batch of another",
        where="tally.airflow.settling:_abandon",
        before="batch(ctx, batch_id, pipeline=pipeline)",
        after="batch(ctx, batch_id)",
        tests=(f"{LOSSES_DAG}::test_an_open_batch_is_abandoned",),
    ),
    Mutant(
        guard="a table of others is not taken for the view of the minutes",
        where="tally.ledger.table_changes:check_minutes_view",
        before="if columns not in ([], _MINUTES_COLUMNS):",
        after="if False:",
        tests=(f"{COMPLETE}::test_a_table_with_the_name_of_the_view_is_left_alone",),
    ),
    # --- replaying
    Mutant(
        guard="replays of uncounted offsets wait for each other, whatever else they replace",
        where="tally.ledger.commit:supersede",
        before="""planned["offsets"] < batch.offsets:""",
        after="""not planned["offsets"]:""",
        tests=(
            f"{RACES}::test_two_replays_that_share_uncounted_offsets_beside_others_count_them_once",
        ),
    ),
    Mutant(
        guard="of the segments before its end a replay looks at the last",
        where="tally.ledger.commit:_check_alone",
        before="order by o.live_from desc limit 1",
        after="order by o.live_from limit 1",
        tests=(f"{RACES}::test_a_backfill_sees_the_last_live_segment_before_its_end",),
    ),
    Mutant(
        guard="what lies before a part of a loss stays accepted",
        where="tally.ledger.commit:_restore_losses",
        before='        ("l.from_offset", "s.from_offset", "l.from_offset < s.from_offset"),\n',
        after="",
        tests=(f"{REPLAY}::test_parts_of_a_loss_may_be_counted_in_any_order",),
    ),
    Mutant(
        guard="replanned batches replace a batch only if they cover it",
        where="tally.ledger.replays:standing_for",
        before="    if join_ranges([*counted, *batch.ranges], touching=True) != "
        "join_ranges(counted, touching=True):",
        after="    if not later:",
        tests=(f"{REPLAY}::test_a_batch_that_was_replanned_and_abandoned_in_part_is_not_done",),
    ),
    Mutant(
        guard="a replay takes the old counts away",
        where="tally.ledger.contributions:_changes",
        before="join segment s on s.segment_id = r.segment_id where {chosen}",
        after="join segment s on s.segment_id = r.segment_id where {chosen} and s.batch_id < 0",
        tests=(f"{REPLAY}::test_a_replay_with_another_level_counts_as_a_fresh_start_would",),
    ),
    Mutant(
        guard="a replay takes the place of what is live",
        where="tally.counting.commit:commit_in",
        before="        steps.supersede(tx, batch)\n",
        after="        pass\n",
        tests=(f"{RACES}::test_of_two_replays_that_commit_at_once_one_is_overtaken",),
    ),
    Mutant(
        guard="a replay is one transaction",
        where="tally.counting.commit:commit_in",
        before="        steps.supersede(tx, batch)\n",
        after="        steps.supersede(tx, batch)\n        tx._connection.commit()\n",
        tests=(f"{RACES}::test_a_replay_that_fails_half_way_leaves_the_old_counts",),
    ),
    Mutant(
        guard="no count goes below zero",
        where="tally.ledger.contributions:take_from_result",
        before="set {less} where {enough}",
        after="set {less}",
        tests=(f"{RACES}::test_a_replay_that_would_leave_a_negative_count_is_refused_whole",),
    ),
    Mutant(
        guard="record times are looked up in each partition",
        where="tally.replay.ranges:_within_times",
        before="until = next_offset if end is None else min(end, next_offset)",
        after="until = start if end is None else min(end, next_offset)",
        tests=(
            f"{PLAN}::test_record_times_out_of_order_give_a_replay_one_range_that_has_all_between",
        ),
    ),
    Mutant(
        guard="minutes that are left with no line disappear",
        where="tally.ledger.contributions:take_from_result",
        before="where {result}.`{LINES}` = 0",
        after="where {result}.`{LINES}` < 0",
        tests=(REPLAY, FOUND),
    ),
    Mutant(
        guard="dead letters of what is replaced go",
        where="tally.ledger.dead_letters:replace_dead_letters",
        before='            " join segment s on s.segment_id = r.segment_id where s.batch_id = %s",\n',
        after='            " join segment s on s.segment_id = r.segment_id where s.batch_id = -%s",\n',
        tests=(f"{REPLAY}::test_dead_letters_that_a_corrected_format_understands_become_lines",),
    ),
    Mutant(
        guard="no other live segment reaches into what a replay counts",
        where="tally.ledger.commit:supersede",
        before="        _check_alone(tx, batch, segment)\n",
        after="        pass\n",
        tests=(f"{REPLAY}::test_offsets_below_the_start_are_counted_for_the_first_time",),
    ),
    Mutant(
        # The replacing segment lies in the range, so the guard above would also notice.
        guard="what is replaced must still be live",
        where="tally.ledger.commit:supersede",
        before="""    if replaced != planned["segments"]:""",
        after="""    if not planned:""",
        also=(
            (
                "tally.ledger.commit:supersede",
                "        _check_alone(tx, batch, segment)\n",
                "        pass\n",
            ),
        ),
        tests=(f"{REPLAY}::test_of_two_replays_of_one_range_each_counts_once",),
    ),
    Mutant(
        guard="a replay erases nothing that Kafka holds no more",
        where="tally.counting.batch:commit_counts",
        before="    check_no_record_lost(ctx, batch, counts.totals)\n",
        after="",
        tests=(f"{REPLAY}::test_compaction_since_the_first_count_erases_nothing",),
    ),
    Mutant(
        guard="fewer records replace only what was counted with those of aborted transactions",
        where="tally.counting.checks:_leaves_out_aborted",
        before="        return replaces_only(tx, batch.batch_id, fingerprint(uncommitted))\n",
        after="        return True\n",
        tests=(f"{REPLAY}::test_compaction_since_the_first_count_erases_nothing",),
    ),
    Mutant(
        guard="fewer records replace others only where those of aborted transactions are left out",
        where="tally.counting.checks:_leaves_out_aborted",
        before="    if not pipeline.reads_committed:\n",
        after="    if False:\n",
        tests=(f"{REPLAY}::test_compaction_since_the_first_count_erases_nothing",),
    ),
    Mutant(
        guard="what compaction has removed is not taken for aborted",
        where="tally.counting.checks:_leaves_out_aborted",
        before="of.compacted is not False for",
        after="False for",
        tests=(f"{REPLAY}::test_compaction_since_the_first_count_erases_nothing",),
    ),
    Mutant(
        guard="what was shown is what is done",
        where="tally.replay.run:request_replay",
        before="found, fingerprint(pipeline)) != plan:",
        after="found, fingerprint(pipeline)) == plan[:1]:",
        tests=(f"{REPLAY}::test_what_was_shown_is_what_is_done",),
    ),
    Mutant(
        guard="a request is one replay, however many ask for it",
        where="tally.replay.run:request_replay",
        before="        _check_not_open(tx, name, known, found)\n",
        after="",
        tests=(f"{REPLAY}::test_two_requests_at_once_for_one_preview_are_one_replay",),
    ),
    Mutant(
        guard="the ranges that were shown are those of the request",
        where="tally.replay.preview:plan_digest",
        before="json.dumps([asked, rules, read])",
        after="json.dumps([rules, read])",
        tests=(f"{REPLAY_DAG}::test_a_real_run_reprocesses_exactly_what_was_shown",),
    ),
    Mutant(
        guard="what was shown is counted by the rules that were shown",
        where="tally.replay.preview:plan_digest",
        before="json.dumps([asked, rules, read])",
        after="json.dumps([asked, read])",
        tests=(f"{REPLAY_DAG}::test_a_real_run_under_other_rules_than_the_previews_is_refused",),
    ),
    Mutant(
        guard="what was shown is of the request that is recorded",
        where="tally.airflow.replay_form:show",
        before='    if seen and seen["digest"] != replay_request.request_digest(request):',
        after='    if seen and not seen["digest"]:',
        tests=(f"{REPLAY_DAG}::test_a_real_run_reprocesses_exactly_what_was_shown",),
    ),
    Mutant(
        guard="runs whose ids differ in case are two",
        where="tally.ledger.replays:find_replay_of_run",
        before="where pipeline = %s and cast(run_id as binary) = %s",
        after="where pipeline = %s and run_id = %s",
        tests=(f"{REPLAY_DAG}::test_runs_whose_ids_differ_in_case_are_two",),
    ),
    Mutant(
        guard="a replay reads the generation that was shown",
        where="tally.replay.preview:plan_digest",
        before=", *plan.generations]",
        after="]",
        tests=(f"{REPLAY}::test_a_preview_of_another_generation_is_not_carried_out",),
    ),
    Mutant(
        guard="a replay replaces nothing of a truncation that is not decided",
        where="tally.ledger.commit:supersede",
        before="    _check_decided(tx, batch)\n",
        after="",
        tests=(
            f"{REPLAY}::test_a_batch_of_offsets_that_were_truncated_since_waits_for_the_operator",
        ),
    ),
    Mutant(
        guard="a loss is that of the partition that was shown",
        where="tally.ledger.decisions:decide_losses",
        before="and decided_at <=> %s and partition_id = %s",
        after="and decided_at <=> %s and partition_id >= least(%s, 0)",
        tests=(f"{LOSSES}::test_a_loss_of_another_partition_with_the_same_number_is_not_decided",),
    ),
    Mutant(
        guard="counts and their rules are of one moment",
        where="tally.reading.counts:counts",
        before='isolation="repeatable read", ',
        after="",
        tests=(f"{RACES}::test_counts_have_the_rules_by_which_they_were_counted",),
    ),
    Mutant(
        guard="the changes of a replay are of one moment",
        where="tally.replay.run:replay_outcome",
        before='isolation="repeatable read", ',
        after="",
        tests=(f"{RACES}::test_the_changes_of_a_replay_are_known_whole_or_not_at_all",),
    ),
    # --- pruning and proving
    Mutant(
        guard="what an open replay has given up is kept",
        where="tally.ledger.folding:forget_history",
        before=" and {_NOT_AWAITED.format('s')}",
        after="",
        tests=(f"{PRUNE}::test_what_an_open_replay_has_given_up_is_not_forgotten",),
    ),
    Mutant(
        guard="prune leaves a topic that was created again alone",
        where="tally.maintenance.prune:prune",
        before="snapshot.partition(where.partition, of=where)",
        after="snapshot.partition(where.partition)",
        tests=(f"{PRUNE}::test_what_is_young_or_needed_is_left_alone",),
    ),
    Mutant(
        guard="prune folds only the generation that Kafka was asked about",
        where="tally.ledger.folding:fold_partition",
        before="record(PartitionRecord, found) != where",
        after="record(PartitionRecord, found, topic_id=where.topic_id) != where",
        tests=(f"{PRUNE}::test_what_kafka_said_of_another_generation_folds_nothing",),
    ),
    Mutant(
        guard="the audit sees all rows, whatever the server's limit is",
        where="tally.mysql.connection:connect",
        before='f" sql_select_limit = {_ALL_ROWS},"',
        after='" sql_select_limit = default,"',
        tests=(
            f"{COMMIT}::test_a_servers_limit_of_rows_hides_nothing_from_the_audit",
            f"{PROVING}::test_a_servers_limit_of_rows_hides_nothing_from_a_recount",
        ),
    ),
    Mutant(
        guard="the audit finds an overlap",
        where="tally.ledger.invariants:_check_tiles",
        before='        if tile["from_offset"] < covered:\n',
        after="        if at < 0:\n",
        tests=(f"{PROVING}::test_what_does_not_add_up_is_found",),
    ),
    Mutant(
        guard="the audit finds a hole",
        where="tally.ledger.invariants:_check_tiles",
        before='        if tile["from_offset"] > at:\n',
        after="        if at < 0:\n",
        tests=(f"{PROVING}::test_what_does_not_add_up_is_found",),
    ),
    Mutant(
        guard="the audit finds a dense segment with fewer records than offsets",
        where="tally.ledger.invariants:_check_density",
        before="s.records <> s.until_offset - s.from_offset",
        after="s.records > s.until_offset - s.from_offset",
        tests=(f"{PROVING}::test_what_does_not_add_up_is_found",),
    ),
    Mutant(
        guard="the audit checks earlier generations of a topic",
        where="tally.ledger.invariants:_check_tiling",
        before='        " where i.pipeline = %s"\n        " order by i.incarnation_id,',
        after="        \" where i.pipeline = %s and i.state = 'current'\"\n"
        '        " order by i.incarnation_id,',
        tests=(f"{PROVING}::test_what_does_not_add_up_is_found",),
    ),
    Mutant(
        guard="the audit finds an offset that counting has not reached",
        where="tally.ledger.invariants:_check_tiles",
        before="    if at != next_offset:\n",
        after="    if at < 0:\n",
        tests=(f"{PROVING}::test_what_does_not_add_up_is_found",),
    ),
    Mutant(
        guard="the audit finds rows that are missing from the result",
        where="tally.ledger.contributions:wrong_rows",
        before="having `stored$` is null or `expected$` is null or `stored$` <> `expected$`",
        after="having `expected$` is null or `stored$` <> `expected$`",
        tests=(f"{PROVING}::test_what_does_not_add_up_is_found",),
    ),
    Mutant(
        guard="the audit finds rows without a contribution",
        where="tally.ledger.contributions:wrong_rows",
        before="having `stored$` is null or `expected$` is null or `stored$` <> `expected$`",
        after="having `stored$` is null or `stored$` <> `expected$`",
        tests=(f"{PROVING}::test_what_does_not_add_up_is_found",),
    ),
    Mutant(
        guard="the audit adds up each segment's minutes",
        where="tally.ledger.invariants:_check_segments",
        before="or matched <> contributed or",
        after="or",
        tests=(f"{PROVING}::test_what_does_not_add_up_is_found",),
    ),
    Mutant(
        guard="the audit counts each segment's dead letters",
        where="tally.ledger.invariants:_check_segments",
        before=" or malformed <> dead_letters",
        after="",
        tests=(f"{PROVING}::test_what_does_not_add_up_is_found",),
    ),
    Mutant(
        guard="the audit adds up each segment's dead letters by reason",
        where="tally.ledger.invariants:_check_segments",
        before=" or malformed <> totalled",
        after="",
        tests=(f"{PROVING}::test_what_does_not_add_up_is_found",),
    ),
    Mutant(
        guard="the audit compares the dead letters of each reason",
        where="tally.ledger.invariants:_check_segments",
        before='"   or other_reasons or continuations',
        after='"   or continuations',
        tests=(f"{PROVING}::test_what_does_not_add_up_is_found",),
    ),
    Mutant(
        guard="the audit finds more continuation lines than unmatched records",
        where="tally.ledger.invariants:_check_segments",
        before=" or continuations > unmatched",
        after="",
        tests=(f"{PROVING}::test_what_does_not_add_up_is_found",),
    ),
    Mutant(
        guard="a recount compares continuation lines",
        where="tally.audit.differences:differences",
        before='"malformed", "continuations"',
        after='"malformed"',
        tests=(f"{PROVING}::test_a_recount_counts_continuation_lines_where_it_knows_of_them",),
    ),
    Mutant(
        guard="what is not known of a segment is not known of its fold",
        where="tally.ledger.folding:_replace_by_one",
        before="if(count(continuations) = count(*), sum(continuations), null)",
        after="sum(continuations)",
        tests=(f"{PRUNE}::test_a_fold_knows_of_continuation_lines_what_all_of_it_knew",),
    ),
    Mutant(
        guard="a recount compares each segment by itself",
        where="tally.audit.recount:_Recounting._compare",
        before="self.violations += differences.differences(",
        after="differences.differences(",
        tests=(
            f"{PROVING}::test_a_boundary_that_moved_with_another_line_than_kafkas_is_found",
            f"{PROVING}::test_a_recount_finds_a_wrong_count_on_which_the_whole_ledger_agrees",
        ),
    ),
    Mutant(
        guard="a recount compares each dead letter",
        where="tally.audit.recount:_Recounting._compare",
        before="self.violations += differences.letter_differences(",
        after="differences.letter_differences(",
        tests=(f"{PROVING}::test_a_dead_letter_that_is_not_kafkas_record_is_found",),
    ),
    Mutant(
        guard="a recount compares the bytes of dead letters",
        where="tally.audit.differences:letter_differences",
        before="        elif not ours.is_less_than(theirs) and ours.digest != theirs.digest:",
        after="        elif ours.digest is not None and ours.digest == b'?':",
        tests=(f"{PROVING}::test_a_dead_letter_that_is_not_kafkas_record_is_found",),
    ),
    Mutant(
        guard="dead letters that cannot be compared are not called right",
        where="tally.audit.recount:_Recounting._compare",
        before="if short := differences.not_compared(letters or {}, kept):",
        after="if (short := differences.not_compared(letters or {}, kept)) < 0:",
        tests=(f"{PROVING}::test_dead_letters_that_were_kept_with_fewer_bytes_are_named",),
    ),
    Mutant(
        guard="what Kafka holds before the start is named",
        where="tally.audit.recount:_Recounting.result",
        before="before_start=tuple(",
        after="before_start=() and tuple(",
        tests=(f"{PROVING}::test_what_lies_before_the_start_is_named",),
    ),
    Mutant(
        guard="the audit adds up what was folded",
        where="tally.ledger.invariants:CHECKS",
        before="    _check_folded,\n",
        after="",
        tests=(f"{PRUNE}::test_folded_counts_that_were_touched_are_found",),
    ),
    Mutant(
        guard="the audit sees a table in which counts would meet",
        where="tally.ledger.invariants:CHECKS",
        before="    _check_keys,\n",
        after="",
        tests=(f"{LABELS}::test_the_audit_sees_a_table_in_which_counts_would_meet",),
    ),
    Mutant(
        guard="the audit sees several rows of one minute and labels",
        where="tally.ledger.contributions:wrong_rows",
        before="if(`rows$` > 1, concat({shown}, ' in ', `rows$`, ' rows'), {shown})",
        after="{shown}",
        tests=(f"{LABELS}::test_the_audit_adds_up_rows_of_columns_that_it_does_not_know",),
    ),
    Mutant(
        guard="what ends behind Kafka's first offset is not folded",
        where="tally.maintenance.prune:prune",
        before="before=held.earliest if held else None",
        after="before=held.earliest + 1 if held else None",
        tests=(f"{PRUNE}::test_what_kafka_has_lost_is_folded_and_the_result_stays",),
    ),
    Mutant(
        guard="older code commits nothing into a newer ledger",
        where="tally.ledger.commit:lock_attempt",
        before="    check_version(tx)\n",
        after="",
        tests=(f"{UPGRADE}::test_older_code_writes_nothing_into_a_newer_ledger",),
    ),
    Mutant(
        guard="older code counts on beside what only expands",
        where="tally.ledger.schema:check_version",
        before=""" f" and right(migration_id, {len(EXPANDS)}) <> '{EXPANDS}'"\n""",
        after="\n",
        tests=(f"{UPGRADE}::test_older_code_counts_beside_what_only_expands",),
    ),
    Mutant(
        guard="what expands is not applied before what does not",
        where="tally.mysql.migrations:apply",
        before="takewhile(lambda one: one.id.endswith(EXPANDS), todo)",
        after="one for one in todo if one.id.endswith(EXPANDS)",
        tests=("tests/cli/test_setup.py::test_what_expands_can_be_applied_first",),
    ),
    Mutant(
        guard="what stops older versions is named before",
        where="tally.mysql.migrations:stopping",
        before="if not name.endswith(EXPANDS)]",
        after="if not name]",
        tests=("tests/cli/test_setup.py::test_what_expands_can_be_applied_first",),
    ),
    Mutant(
        guard="the packages of executors are of this version",
        where="tally.spark.session:_python_archive",
        before="if found and packages not in found:",
        after="if False:",
        tests=(
            "tests/unit/test_jars.py::test_packages_of_another_version_are_not_sent_to_executors",
        ),
    ),
    Mutant(
        guard="pipelines on one server have fair shares",
        where="tally.spark.connect_server:server_command",
        before='"spark.scheduler.mode": "FAIR",',
        after='"spark.scheduler.mode": "FIFO",',
        tests=(
            "tests/stack/test_spark_cluster.py::test_a_small_batch_does_not_wait_for_a_large_one",
        ),
    ),
    # --- labels
    Mutant(
        guard="a label without a column is not counted",
        where="tally.counting.plan:_plan",
        before="    tables.check_tables(tx, own, pipeline)\n",
        after="",
        tests=(f"{LABELS}::test_a_label_without_a_column_is_neither_planned_nor_recounted",),
    ),
    Mutant(
        guard="columns are added between batches",
        where="tally.ledger.tables:check_idle",
        before="    if ids := list(found):",
        after="    if not (ids := list(found)):",
        tests=(f"{LABELS}::test_a_label_that_is_added_later_is_filled_by_a_replay",),
    ),
    Mutant(
        guard="a row may gain lines and lose bytes",
        where="tally.ledger.contributions:add_to_result",
        before="greatest(`_added`.`{s}`, 0)",
        after="`_added`.`{s}`",
        tests=(f"{LABELS}::test_a_replay_may_count_more_lines_of_fewer_bytes",),
    ),
    Mutant(
        guard="a recount compares with the columns of all labels",
        where="tally.audit.recount:recount",
        before="            check_tables(tx, tables, pipeline)\n",
        after="            pass\n",
        tests=(f"{LABELS}::test_a_label_without_a_column_is_neither_planned_nor_recounted",),
    ),
    Mutant(
        guard="a label makes room for another",
        where="tally.ledger.table_changes:check_preparation",
        before="(pipeline.has_own_tables or (before is not None and before.has_own))",
        after="pipeline.has_own_tables",
        tests=(f"{LABELS}::test_one_label_makes_room_for_another",),
    ),
    Mutant(
        guard="a table with labels is not taken by another pipeline",
        where="tally.ledger.positions:lock_pipeline",
        before="        check_owner(tx, pipeline, result_table, lock=True)\n",
        after="",
        tests=(f"{LABELS}::test_a_table_holds_the_counts_of_one_pipeline",),
    ),
    Mutant(
        guard="no column is added to another pipeline's table",
        where="tally.ledger.table_changes:check_preparation",
        before="        check_owner(tx, pipeline.name, pipeline.table)\n",
        after="",
        tests=(f"{LABELS}::test_a_table_holds_the_counts_of_one_pipeline",),
    ),
    Mutant(
        guard="the audit adds up rows of columns that it does not know",
        where="tally.ledger.contributions:wrong_rows",
        before='from ({result}) as r"',
        after='from `{tables.result}`"',
        tests=(f"{LABELS}::test_the_audit_adds_up_rows_of_columns_that_it_does_not_know",),
    ),
    Mutant(
        guard="label values that look alike stay apart",
        where="tally.ledger.schema:read_shapes",
        before="utf8mb4_0900_bin",
        after="utf8mb4_bin",
        tests=(f"{LABELS}::test_values_that_look_alike_stay_apart",),
    ),
    Mutant(
        guard="what was counted before a label was added moves with its pipeline",
        where="tally.ledger.table_changes:_switch",
        before="        copy_shared(tx, before, wanted, pipeline.name)\n",
        after="        pass\n",
        tests=(f"{LABELS}::test_a_label_that_is_added_later_is_filled_by_a_replay",),
    ),
    Mutant(
        guard="new rules stop at the share of malformed records",
        where="tally.counting.checks:check_understood",
        before="read.ratio <= pipeline.max_malformed_ratio",
        after="read.ratio <= 1",
        tests=(RATIO,),
    ),
    Mutant(
        guard="the share of malformed records stops no replay under the same rules",
        where="tally.counting.checks:_is_trusted",
        before="if batch.kind is BatchKind.REPLAY and",
        after="if batch.kind is BatchKind.INGEST and",
        tests=(RATIO,),
    ),
    Mutant(
        guard="only batches within the share of malformed records make rules trusted",
        where="tally.ledger.rules:records_in_sound_batches",
        before="malformed <= lines_read * %s",
        after="malformed >= 0 * %s",
        tests=(RATIO,),
    ),
    Mutant(
        guard="a batch without a line stops",
        where="tally.ledger.rules:Understood.ratio",
        before="float(self.records > 0)",
        after="0.0",
        tests=(RATIO,),
    ),
    Mutant(
        guard="a batch without a line stops whatever its rules have understood before",
        where="tally.counting.checks:_is_trusted",
        before="return read.lines > 0 and records_in_sound_batches",
        after="return records_in_sound_batches",
        tests=(RATIO,),
    ),
    Mutant(
        guard="batches without a matched line make no rules trusted that leave continuations out",
        where="tally.ledger.rules:records_in_sound_batches",
        before="least_matched = 1 if",
        after="least_matched = 0 if",
        tests=(RATIO,),
    ),
    Mutant(
        guard="nothing is written to a set that was dropped",
        where="tally.deliveries.set_tables:SetTables._lock",
        before="if tx.scalar(locked, (set_id,)) not in states:",
        after="if tx.scalar(locked, (set_id,)) is None and not states:",
        tests=(f"{ROWS}::test_a_writer_that_wakes_after_a_replay_invents_no_row",),
    ),
    Mutant(
        guard="an older attempt keeps no lines behind a newer one",
        where="tally.deliveries.set_store:SetStore.open_set",
        before="if newer is not None:",
        after="if False:",
        tests=(f"{ROWS}::test_an_attempt_writes_beside_a_stopped_one",),
    ),
    Mutant(
        guard="a batch is committed with a set that is still sealed",
        where="tally.deliveries.kept_lines:KeptLines.commit",
        before="        self.store.check_sealed(line_set)\n",
        after="",
        tests=(f"{RESTORE}::test_a_batch_is_committed_with_a_set_that_is_still_sealed",),
    ),
    Mutant(
        guard="a replica drops no set that it does not know",
        where="tally.deliveries.kept_lines:KeptLines.show",
        before="read_only=not waiting",
        after="read_only=True",
        tests=(f"{RESTORE}::test_a_replica_takes_no_line_away",),
    ),
    Mutant(
        guard="a set is sealed with as many rows as were written",
        where="tally.deliveries.set_store:SetStore.seal",
        before="if found != lines:",
        after="if False:",
        tests=(f"{ROWS}::test_a_set_with_other_rows_than_lines_is_not_committed",),
    ),
    Mutant(
        guard="a batch is committed with as many rows as lines",
        where="tally.ledger.line_sets:record_line_set",
        before="if kept is None or kept.lines != counted.matched:",
        after="if kept is None:",
        tests=(f"{ROWS}::test_a_set_with_other_rows_than_lines_is_not_committed",),
    ),
    Mutant(
        guard="readers see only live sets",
        where="tally.deliveries.row_sets:_VIEW",
        before="where s.state = 'live'{first}",
        after="where s.state <> 'dropped'{first}",
        tests=(f"{ROWS}::test_an_attempt_writes_beside_a_stopped_one",),
    ),
    Mutant(
        guard="a set that becomes live replaces those of its range",
        where="tally.deliveries.set_store:SetStore._drop_live",
        before="and cluster_id = %s and state = 'live'",
        after="and cluster_id = %s and state = 'open'",
        tests=(
            f"{ROWS}::test_rows_are_shown_by_the_next_run_when_a_driver_is_killed_behind_its_commit",
        ),
    ),
    Mutant(
        guard="a set that becomes live replaces one that reaches into its range",
        where="tally.deliveries.set_store:SetStore._drop_live",
        before='below["until_offset"] > by.from_offset else',
        after='below["until_offset"] < by.from_offset else',
        tests=(
            f"{RESTORE}::test_lines_of_a_set_that_a_restored_ledger_does_not_know_are_seen_once",
        ),
    ),
    Mutant(
        guard="a set that was dropped never becomes live",
        where="tally.deliveries.set_store:SetStore.publish",
        before="state = 'sealed' and set_id in %s",
        after="set_id in %s",
        tests=(f"{ROWS}::test_a_publisher_that_wakes_late_brings_nothing_back",),
    ),
    Mutant(
        guard="a set whose attempt may still commit is not dropped",
        where="tally.deliveries.kept_lines:verdict",
        before="waiting.attempt == segment.attempt",
        after="waiting.attempt > segment.attempt",
        tests=(f"{ROWS}::test_a_set_of_the_newest_attempt_waits_for_its_commit",),
    ),
    Mutant(
        guard="of several sets of a segment the committed one is shown",
        where="tally.deliveries.kept_lines:verdict",
        before="if segment.line_set == waiting.set_id:",
        after="if segment.line_set is not None:",
        tests=(f"{PUBLISH}::test_the_ledger_decides_what_becomes_of_a_set",),
    ),
    Mutant(
        guard="what readers may not see yet is not folded",
        where="tally.ledger.folding:fold_partition",
        before='" and not exists (select 1 from row_outbox x where x.segment_id = s.segment_id)"',
        after='""',
        tests=(f"{ROWS}::test_what_is_not_shown_yet_is_not_folded",),
    ),
    Mutant(
        guard="lines are kept where they were kept before",
        where="tally.ledger.line_sets:check_lines",
        before="if tables.rows_view != pipeline.rows_view and",
        after="if False and",
        tests=(f"{ROWS}::test_lines_are_kept_where_they_were_kept_before",),
    ),
    Mutant(
        guard="the audit compares rows with lines",
        where="tally.audit.audit:audit",
        before="violations += delivery_of(ctx, pipeline).violations()",
        after="",
        tests=(f"{ROWS}::test_the_audit_finds_rows_that_are_not_the_lines",),
    ),
    Mutant(
        guard="an audit says only what it finds each time",
        where="tally.deliveries.kept_lines:KeptLines.violations",
        before="for segment_id, what in again.items() if segment_id in found",
        after="for segment_id, what in again.items()",
        tests=(f"{PUBLISH}::test_what_differs_for_a_moment_is_no_violation",),
    ),
    Mutant(
        guard="the lines of another ledger are left alone",
        where="tally.deliveries.set_tables:SetTables._check_owner",
        before="if wrong:",
        after="if False:",
        tests=(f"{ROWS}::test_lines_of_another_ledger_are_left_alone",),
    ),
    Mutant(
        guard="the outbox keeps what readers do not see",
        where="tally.deliveries.kept_lines:KeptLines.show",
        before="done = store.shown(committed) if committed else set()",
        after="done = set(committed)",
        tests=(f"{ROWS}::test_a_set_that_is_gone_stays_in_the_outbox",),
    ),
    Mutant(
        guard="a server without the lines so far is refused",
        where="tally.deliveries.set_tables:SetTables.prepare",
        before="if has_lines and self.sets not in there:",
        after="if False:",
        tests=(f"{ROWS}::test_lines_that_are_elsewhere_are_not_forgotten",),
    ),
    Mutant(
        guard="a file is not seen before it is whole",
        where="tally.deliveries.file_sets:_FileWriter._begun",
        before="_open_path(self._place) if folder.is_local else _path(self._place)",
        after="_path(self._place)",
        tests=(f"{FILES}::test_a_file_is_not_seen_before_it_is_whole",),
    ),
    Mutant(
        guard="an older list of files does not stay",
        where="tally.deliveries.file_sets:FileSets.inform_readers",
        before="while listed != folder.read(LIST):",
        after="if listed != folder.read(LIST):",
        tests=(f"{FILES}::test_an_older_list_does_not_stay",),
    ),
    Mutant(
        guard="nothing is written into a folder that does not say whose it is",
        where="tally.deliveries.set_tables:SetTables._check",
        before="if lacking := self.lacks(tx):",
        after="if lacking := '':",
        tests=(f"{FILES}::test_an_executor_that_does_not_see_the_folder_writes_nothing",),
    ),
    Mutant(
        guard="the folder of another pipeline is not taken",
        where="tally.deliveries.file_sets:FileSets.lacks",
        before="if named != self.owner:",
        after="if False:",
        tests=(f"{FILES}::test_a_folder_of_another_pipeline_is_not_taken",),
    ),
    Mutant(
        guard="a folder without the files so far is refused",
        where="tally.deliveries.file_sets:FileSets.prepare_else",
        before="if kept is not None:",
        after="if False:",
        tests=(f"{FILES}::test_files_are_moved_with_their_folder",),
    ),
    Mutant(
        guard="replaced files stay for those who read them",
        where="tally.deliveries.file_sets:FileSets.kept_s",
        before="3_600",
        after="0",
        tests=(f"{FILES}::test_replaced_files_stay_for_an_hour",),
    ),
    Mutant(
        guard="only files of no set are orphans",
        where="tally.deliveries.file_sets:FileSets.delete_orphans",
        before=" if number not in there]",
        after="]",
        tests=(f"{FILES}::test_files_of_no_set_are_deleted_daily_and_others_are_left",),
    ),
    Mutant(
        guard="no file is an orphan while the table of sets is older than the ledger",
        where="tally.deliveries.kept_lines:KeptLines.tidy",
        before="        if lost := len(",
        after="        if 0 > len(",
        tests=(
            f"{FILES}::test_no_file_is_deleted_while_the_table_of_sets_is_older_than_the_ledger",
        ),
    ),
    Mutant(
        guard="nothing is sealed once the place of the lines was changed",
        where="tally.deliveries.set_store:SetStore.seal",
        before="self._check(tx)",
        after="pass",
        tests=(f"{FILES}::test_a_file_in_a_folder_that_was_moved_meanwhile_is_not_committed",),
    ),
    Mutant(
        guard="the files of another pipeline are no orphans",
        where="tally.deliveries.kept_lines:KeptLines.tidy",
        before="store.check()",
        after="pass",
        tests=(f"{FILES}::test_pruning_with_the_folder_of_another_pipeline_deletes_nothing",),
    ),
    Mutant(
        guard="a writer whose set was dropped deletes its file",
        where="tally.deliveries.contract:LineWriter._discarded",
        before="self.discard()",
        after="pass",
        tests=(f"{ROWS}::test_a_writer_that_wakes_after_a_replay_invents_no_row",),
    ),
    Mutant(
        guard="the audit tells of files that cannot be read",
        where="tally.deliveries.file_sets:_found",
        before='trouble = f"cannot be read: {error}"',
        after='trouble = ""',
        tests=(f"{FILES}::test_the_audit_finds_files_that_are_not_the_lines",),
    ),
    Mutant(
        guard="a pipeline whose lines are all folded has kept lines",
        where="tally.ledger.line_sets:has_lines",
        before=" or s.state = 'folded' and s.matched > 0",
        after="",
        tests=(f"{ROWS}::test_lines_are_not_left_behind_also_when_all_of_them_are_folded",),
    ),
    Mutant(
        guard="the number of a set is given once",
        where="tally.deliveries.set_store:SetStore.open_set",
        before="set_id=secrets.randbits(62)",
        after='set_id=1 + tx.scalar(f"select count(*) from `{self.sets}`")',
        tests=(f"{RESTORE}::test_a_set_of_lines_never_has_the_number_of_an_earlier_one",),
    ),
    Mutant(
        guard="a set is of one segment",
        where="tally.deliveries.row_audit:_difference",
        before=" or kept.place.segment_id != first.segment_id",
        after="",
        tests=(f"{ROWS}::test_the_audit_tells_two_segments_of_one_set",),
    ),
    Mutant(
        guard="a procedure writes the lines of one pipeline",
        where="tally.deliveries.row_sets:RowSets.lacks",
        before='if comment.startswith(_MADE_BY_TALLY) and comment != f"{_MADE_BY_TALLY}{self.owner}":',
        after="if False:",
        tests=(f"{ROWS}::test_pipelines_do_not_share_a_procedure_or_a_folder",),
    ),
    Mutant(
        guard="a folder with lines of nobody is not taken",
        where="tally.deliveries.file_sets:FileSets.prepare_else",
        before="elif any(_number_of(path) is not None for path in folder.list(_LINES)):",
        after="elif False:",
        tests=(f"{FILES}::test_a_folder_of_another_pipeline_is_not_taken",),
    ),
    Mutant(
        guard="a list that was put back is written again",
        where="tally.deliveries.kept_lines:KeptLines.show",
        before="        store.inform_readers()\n",
        after="        if live or committed:\n            store.inform_readers()\n",
        tests=(f"{FILES}::test_the_list_follows_when_a_driver_is_killed_before_it_is_written",),
    ),
    Mutant(
        guard="lines of clusters with the same topic id are told apart",
        where="tally.deliveries.row_sets:_FIRST_OF_KEY",
        before="t.topic_id, t.cluster_id, t.partition_id",
        after="t.topic_id, s.cluster_id, t.partition_id",
        tests=(
            f"{DELIVERIES}::test_a_topic_that_was_copied_with_its_id_is_told_apart_by_its_cluster",
        ),
    ),
)
