"""Tally's own deliveries, as ``tally plan`` and ``tally run`` do them, with points for faults."""

import dataclasses
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.laboratory.bench import Bench, then_fail
from benchmarks.laboratory.faults import Fault, begin_batch, behind, point
from tally.config.loading import load_settings
from tally.context import Context, open_context
from tally.counting import batch
from tally.counting.plan import plan
from tally.counting.run import run_batches
from tally.spark import counting, task_counting
from tally.spark.reading import read_ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def process_all(bench: Bench) -> None:
    """Plan and run until nothing is new."""
    counting.read_ranges = task_counting.read_ranges = _read  # type: ignore[attr-defined]
    batch.commit_in_task = _points(batch.commit_in_task)
    ctx = context(bench.config, bench.spark)
    while batch_ids := plan(ctx, bench.pipeline).batch_ids:
        begin_batch()
        list(run_batches(ctx, batch_ids))


def context(config: Path, spark: "SparkSession | None" = None) -> Context:
    """A context whose statements are points; a Spark task makes one of its own."""
    ctx = open_context(
        load_settings(config),
        open_session=None if spark is None else lambda: nullcontext(spark),
    )
    return dataclasses.replace(
        ctx,
        database=dataclasses.replace(ctx.database, listen=_at_statement),
        in_task=partial(context, config),
    )


def _read(*given: Any, **named: Any) -> "DataFrame":
    return then_fail(read_ranges(*given, **named))


def _points(commit: Any) -> Any:
    """What a task does, with points before and behind its commit."""

    def struck(*given: Any) -> Any:
        point(Fault.COPY_WROTE)
        done = commit(*given)
        behind(Fault.COPY_WROTE)
        point(Fault.TASK_WROTE, Fault.BETWEEN_TASKS, Fault.EXECUTOR_WROTE)
        return done

    return struck


def _at_statement(statement: str) -> None:
    """In its one transaction Tally moves the offsets first, and marks the batch last.

    Kept lines are written before, in transactions of their own.
    """
    if statement.lstrip().startswith("insert into `segment_count`"):
        point(Fault.BEFORE_WRITE)
    if statement.startswith("update batch set state = 'committed'"):
        point(Fault.BEFORE_OFFSETS, Fault.STATE_LOST, Fault.CODE_CHANGED)
