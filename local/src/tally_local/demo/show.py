"""The demonstration itself: start everything, show each minute, check the counts."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from tally.audit.audit import AuditView, audit
from tally.config.loading import load_settings
from tally.config.pipeline import Pipeline
from tally.context import Context, open_context
from tally.errors import EXIT_FINDINGS, EXIT_OK, StackError
from tally.formatting import plural
from tally.ledger import positions
from tally.ledger.reading import BatchRecord
from tally.ledger.results import lines_by_minute
from tally.ledger.segments import SegmentRecord, segments_of
from tally.ledger.tables import Tables
from tally.model import TopicPartition
from tally_local.demo.airflow_api import AirflowApi
from tally_local.demo.commits import Commits
from tally_local.demo.traffic import Traffic
from tally_local.demo.writer import LineWriter
from tally_local.first_use import PARTITIONS, prepare, shows
from tally_local.stack.airflow_config import ADMIN
from tally_local.stack.lock import held_alone
from tally_local.stack.server import Part
from tally_local.stack.stack import Stack

PIPELINE: Final = "error_log"
LINES_PER_SECOND: Final = 200
MINUTES: Final = 2
PATIENCE_S: Final = 600
POLL_S: Final = 0.5
LAST_ROWS: Final = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """The result compared with what the producer sent, minute by minute."""

    expected: Mapping[str, int]
    """Lines at the pipeline's levels, per minute, that the producer wrote below the committed
    offsets."""
    differing: Mapping[str, tuple[int, int]]
    """Lines sent and lines counted, for each minute in which they differ."""


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
        address = next(str(status.address) for status in parts if status.part is Part.AIRFLOW)
        with _unpaused(AirflowApi(address, ADMIN, stack.credentials().airflow_admin)):
            _say(f"Airflow: {address}  user {ADMIN}")
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
    if waits(ctx, pipeline):
        _say("lines that wait already are counted first")
        _drain(ctx, pipeline)
    before = _counted(ctx, pipeline)
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
        commits = _commits(stack, ctx, patience_s=PATIENCE_S)
        for _ in range(MINUTES):
            next(commits)
        if once:
            traffic.close()
            return _conclude(ctx, pipeline, traffic, before)
        _conclude(ctx, pipeline, traffic, before)
        _say("it continues until Ctrl-C")
        try:
            for _ in commits:
                pass
        except KeyboardInterrupt:
            return EXIT_OK
    raise AssertionError("unreachable: commits are shown until an interrupt")


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


def _drain(ctx: Context, pipeline: Pipeline) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while waits(ctx, pipeline):
        if time.monotonic() > deadline:
            raise _nothing_committed(PATIENCE_S)
        time.sleep(POLL_S)


def _nothing_committed(patience_s: float) -> StackError:
    return StackError(
        f"nothing was committed in {patience_s:.0f} s",
        next_step=f"look at the runs of {PIPELINE} in Airflow, and at the logs under .tally/logs",
    )


def _commits(stack: Stack, ctx: Context, *, patience_s: float) -> Iterator[BatchRecord]:
    """Show each batch that is committed from now on."""
    commits = Commits(ctx.database, PIPELINE)
    deadline = time.monotonic() + patience_s
    while True:
        if stopped := stack.stopped():
            raise StackError(
                f"another command has stopped {', '.join(stopped)}: the demonstration is over",
                next_step="make demo starts it again, with the data it had",
            )
        for batch in commits.new():
            deadline = time.monotonic() + patience_s
            _say(commit_line(batch, _segments(ctx, batch)))
            yield batch
        if time.monotonic() > deadline:
            raise _nothing_committed(patience_s)
        time.sleep(POLL_S)


def _conclude(ctx: Context, pipeline: Pipeline, traffic: Traffic, before: Mapping[str, int]) -> int:
    """Print the last rows, the audit's conclusion and the producer's own count."""
    verdict = audit(ctx, pipeline.name)
    comparison = _compare(ctx, pipeline, traffic, before)
    _say(f"\nlast rows of {pipeline.table}:")
    for minute, count in _counted(ctx, pipeline, last=LAST_ROWS).items():
        _say(f"  {minute}  {count:>8,}")
    _say(_verdict_line(verdict))
    _say(_comparison_line(comparison, ", ".join(pipeline.levels)))
    proven = verdict.holds and comparison.expected and not comparison.differing
    return EXIT_OK if proven else EXIT_FINDINGS


def _compare(
    ctx: Context, pipeline: Pipeline, traffic: Traffic, before: Mapping[str, int]
) -> Comparison:
    """Compare the result with what the producer sent, in one snapshot of the ledger.

    Minutes that the table had before are left out: an earlier run has counted lines in them.
    """
    with ctx.database.transaction(isolation="repeatable read", read_only=True) as tx:
        offsets = positions.current_offsets(tx, pipeline.name)
        counted = lines_by_minute(tx, Tables(result=pipeline.table))
    sent = traffic.lines_before({p.partition: offset for p, offset in offsets.items()})
    expected = {minute: count for minute, count in sent.items() if minute not in before}
    first = min(expected, default="9999")
    minutes = expected.keys() | {m for m in counted if m >= first and m not in before}
    return Comparison(
        expected=expected,
        differing={
            minute: (expected.get(minute, 0), counted.get(minute, 0))
            for minute in sorted(minutes)
            if expected.get(minute, 0) != counted.get(minute, 0)
        },
    )


def _counted(ctx: Context, pipeline: Pipeline, *, last: int | None = None) -> dict[str, int]:
    with ctx.database.transaction(read_only=True) as tx:
        return lines_by_minute(tx, Tables(result=pipeline.table), last=last)


def _segments(ctx: Context, batch: BatchRecord) -> list[SegmentRecord]:
    with ctx.database.transaction(read_only=True) as tx:
        return segments_of(tx, batch.batch_id)


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


def _verdict_line(verdict: AuditView) -> str:
    if verdict.holds:
        return (
            f"audit: holds ({verdict.segments:,} segments, {verdict.records:,} records, "
            f"{verdict.matched:,} matched in {plural(verdict.minutes, 'minute')})"
        )
    details = "\n".join(f"  {f.check}: {f.where}: {f.detail}" for f in verdict.findings)
    return f"audit: DOES NOT HOLD\n{details}"


def _comparison_line(comparison: Comparison, levels: str) -> str:
    if comparison.differing:
        details = "\n".join(
            f"  {minute}: sent {sent:,}, counted {counted:,}"
            for minute, (sent, counted) in comparison.differing.items()
        )
        return f"the producer's own count: DIFFERS\n{details}"
    total = sum(comparison.expected.values())
    return (
        f"the producer's own count: equal ({total:,} lines at {levels} in "
        f"{plural(len(comparison.expected), 'minute')})"
    )


def _say(message: str) -> None:
    click.echo(message)
