"""The demonstration itself: start everything, show each minute, check the counts."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import click

from tally.audit.audit import audit
from tally.config.loading import load_settings
from tally.config.pipeline import Pipeline
from tally.context import Context, open_context
from tally.errors import EXIT_FINDINGS, EXIT_OK, StackError
from tally.formatting import plural
from tally.ledger import positions
from tally.ledger.records import BatchRecord, SegmentRecord, list_batches, segments_of
from tally.ledger.results import result_rows
from tally.ledger.tables import Tables
from tally.model import BatchState, TopicPartition
from tally.mysql.transactions import Database
from tally_local.demo.airflow_api import AirflowApi
from tally_local.demo.traffic import Traffic
from tally_local.demo.writer import LineWriter
from tally_local.first_use import PARTITIONS, prepare, shows
from tally_local.stack.airflow_server import ADMIN
from tally_local.stack.lock import held_alone
from tally_local.stack.stack import Stack

PIPELINE: Final = "error_log"
LINES_PER_SECOND: Final = 200
MINUTES: Final = 2
PATIENCE_S: Final = 600
POLL_S: Final = 0.5
LAST_ROWS: Final = 5
LATEST: Final = 1_000
"""Batches among which new commits are looked for."""


def run(project: Path, *, once: bool) -> int:
    """Run the demonstration in a checkout.

    Args:
        project: The checkout, with ``tally.toml``, ``dags/`` and the folder ``.tally``.
        once: End after two committed minutes instead of staying until Ctrl-C.

    Returns:
        The exit code: 0, or 1 when the audit or the producer's own count disagrees.

    Raises:
        StackError: A demonstration runs already, a server crashed or was stopped, or no batch was
        committed in ten minutes.
        KeyboardInterrupt: Ctrl-C or SIGTERM before the end; the stack has been stopped.
    """
    stack = Stack(project=project, announce=_say)
    alone = held_alone(stack.layout.home / "demo.lock", "a demonstration")
    with alone, stack.foreground() as parts:
        settings = load_settings(project / "tally.toml")
        ctx, pipeline = open_context(settings), settings.pipeline(PIPELINE)
        prepare(settings, parts)
        airflow = AirflowApi.of(stack)
        with _unpaused(airflow):
            _say(f"Airflow: {airflow.address}  user {ADMIN}")
            _say(shows(stack.layout.credentials, "airflow_admin"))
            return _show(stack, ctx, pipeline, once=once)


@contextmanager
def _unpaused(airflow: AirflowApi) -> Iterator[None]:
    """The DAG counts inside the block; after it the next ``tally up`` starts with a paused one."""
    airflow.unpause(PIPELINE)
    try:
        yield
    finally:
        try:
            airflow.pause(PIPELINE)
        except StackError as error:  # Airflow may be what has ended the demonstration
            _say(f"the DAG {PIPELINE} was not paused again: {error.what}")


def _show(stack: Stack, ctx: Context, pipeline: Pipeline, *, once: bool) -> int:
    deadline = time.monotonic() + PATIENCE_S
    if waits(ctx, pipeline):
        _say("lines that wait already are counted first")
    while waits(ctx, pipeline):
        _check_patience(deadline)
    _, before = _counts(ctx, pipeline)
    seed = time.time_ns() % 1_000_000
    _say(f"writing about {LINES_PER_SECOND} lines a second to {pipeline.topics[0]}, seed {seed}")
    with Traffic(
        LineWriter(ctx.settings.kafka),
        pipeline.topics[0],
        partitions=PARTITIONS,
        levels=pipeline.levels,
        rate=LINES_PER_SECOND,
        seed=seed,
    ) as traffic:
        shown = _shown_commits(stack, ctx)
        for _ in range(MINUTES):
            next(shown)
        if once:
            traffic.close()
        code = _conclude(ctx, pipeline, traffic, before)
        if not once:
            _say("it continues until Ctrl-C")
            with suppress(KeyboardInterrupt):
                for _ in shown:
                    pass
        return code


def waits(ctx: Context, pipeline: Pipeline) -> bool:
    """Whether lines wait, which an interrupted demonstration may have left."""
    with ctx.database.transaction(read_only=True) as tx:
        offsets = positions.current_offsets(tx, pipeline.name)
    snapshot = ctx.kafka.snapshot(pipeline.topics, read_committed=pipeline.reads_committed)
    return any(
        held.end > offsets.get(TopicPartition(topic=topic, partition=number), held.earliest)
        for topic, of_topic in snapshot.topics.items()
        for number, held in of_topic.partitions.items()
    )


def _check_patience(deadline: float) -> None:
    """Wait a moment; raise when nothing was committed until the deadline."""
    if time.monotonic() > deadline:
        raise StackError(
            f"nothing was committed in {PATIENCE_S:.0f} s",
            next_step=f"see the runs of {PIPELINE} in Airflow, and the logs under .tally/logs",
        )
    time.sleep(POLL_S)


def commits(database: Database, pipeline: str) -> Iterator[list[BatchRecord]]:
    """Each answer has what was committed since the one before; the first one is empty.

    Their order is that of the commits, not of their ids: a replay's batches are planned together,
    and minute batches are committed between them. Of the ledger's latest batches only.
    """
    seen: set[int] | None = None
    while True:
        with database.transaction(read_only=True) as tx:
            found = list_batches(tx, pipeline, state=BatchState.COMMITTED, limit=LATEST)
        new = [] if seen is None else [batch for batch in found if batch.batch_id not in seen]
        seen = {batch.batch_id for batch in found}
        yield sorted(new, key=lambda batch: (batch.committed_at, batch.batch_id))


def _shown_commits(stack: Stack, ctx: Context) -> Iterator[BatchRecord]:
    """Show each batch that is committed from now on."""
    deadline = time.monotonic() + PATIENCE_S
    for new in commits(ctx.database, PIPELINE):
        if stopped := stack.stopped():
            raise StackError(
                f"another command has stopped {', '.join(stopped)}: the demonstration is over",
                next_step="make demo starts it again, with the data it had",
            )
        for batch in new:
            deadline = time.monotonic() + PATIENCE_S
            with ctx.database.transaction(read_only=True) as tx:
                segments = segments_of(tx, batch.batch_id)
            _say(commit_line(batch, segments))
            yield batch
        _check_patience(deadline)


def _conclude(ctx: Context, pipeline: Pipeline, traffic: Traffic, before: Mapping[str, int]) -> int:
    """Print the last rows, the audit's conclusion and the producer's own count.

    That is compared for minutes that the table had not before: an earlier run may have counted
    lines in the others.
    """
    verdict = audit(ctx, pipeline.name)
    offsets, rows = _counts(ctx, pipeline)
    sent = traffic.lines_before({p.partition: offset for p, offset in offsets.items()})
    expected = {minute: count for minute, count in sent.items() if minute not in before}
    first = min(expected, default="9999")
    counted = {m: lines for m, lines in rows.items() if m >= first and m not in before}
    differing = sorted({minute for minute, _ in expected.items() ^ counted.items()})
    _say(f"\nlast rows of {pipeline.table}:")
    for minute, count in list(rows.items())[-LAST_ROWS:]:
        _say(f"  {minute}  {count:>8,}")
    if verdict.holds:
        minutes = plural(verdict.minutes, "minute")
        _say(
            f"audit: holds ({verdict.segments:,} segments, {verdict.records:,} records, "
            f"{verdict.matched:,} matched in {minutes})"
        )
    else:
        _say("audit: DOES NOT HOLD")
        for found in verdict.findings:
            _say(f"  {found.check}: {found.where}: {found.detail}")
    if differing:
        _say("the producer's own count: DIFFERS")
        for minute in differing:
            _say(
                f"  {minute}: sent {expected.get(minute, 0):,}, counted {counted.get(minute, 0):,}"
            )
    else:
        _say(
            f"the producer's own count: equal ({sum(expected.values()):,} lines at "
            f"{', '.join(pipeline.levels)} in {plural(len(expected), 'minute')})"
        )
    return EXIT_OK if verdict.holds and expected and not differing else EXIT_FINDINGS


def _counts(ctx: Context, pipeline: Pipeline) -> tuple[dict[TopicPartition, int], dict[str, int]]:
    """The next offsets, and the counted lines by minute, in one snapshot of the ledger.

    The minutes are ``YYYY-MM-DD HH:MM``, oldest first; the demonstration has no labels.
    """
    with ctx.database.transaction(isolation="repeatable read", read_only=True) as tx:
        offsets = positions.current_offsets(tx, pipeline.name)
        found = result_rows(tx, Tables(result=pipeline.table))
    return offsets, {row.log_time[: len("YYYY-MM-DD HH:MM")]: row.log_count for row in found}


def commit_line(batch: BatchRecord, segments: list[SegmentRecord]) -> str:
    """A committed batch in one line."""
    seconds = 0.0
    if batch.committed_at is not None and batch.claimed_at is not None:
        seconds = (batch.committed_at - batch.claimed_at).total_seconds()
    replay = "" if batch.replay_id is None else f" of replay {batch.replay_id}"
    return (
        f"{batch.committed_at:%H:%M:%S}  batch {batch.batch_id}{replay}"
        f"  {batch.records or 0:,} records  {batch.matched or 0:,} matched"
        f"  {batch.malformed or 0:,} malformed  {seconds:.1f} s"
        f"  {', '.join(map(str, [segment.range for segment in segments]))}"
    )


def _say(message: str) -> None:
    click.echo(message)
