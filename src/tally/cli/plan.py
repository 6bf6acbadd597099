"""``plan``: fix which offsets the next batch reads."""

from typing import Any

import click

from tally.cli.app import App
from tally.cli.command import Command
from tally.cli.options import dry_run_option, json_option, pass_app, pipeline_argument
from tally.cli.shapes import Shape, block_shape, planned_batch_shape
from tally.cli.ui.values import number, span
from tally.formatting import plural
from tally.model import Batch
from tally.pipeline.plan import Planned, plan_batch
from tally.planning.blocks import blocked_error


@click.command(
    cls=Command,
    examples=[
        "tally plan",
        "tally plan error_log --dry-run",
        "tally plan error_log --json | jq .batch.batch_id",
    ],
)
@pipeline_argument
@dry_run_option
@json_option
@pass_app
def plan(app: App, pipeline: str | None, dry_run: bool) -> None:
    """Fix which offsets the next batch reads.

    Asks Kafka what is new and writes the ranges down; from then on they never change. A batch that
    was planned before and is not committed yet is taken up again as it is. Partitions on which
    Kafka and the ledger disagree are left out and named, with exit code 4; the others are planned.
    """
    planned = plan_batch(app.context, app.pipeline(pipeline), dry_run=dry_run)
    if app.out.as_json:
        app.out.document(_plan_shape(planned, dry_run=dry_run))
    else:
        _show_plan(app, planned, dry_run=dry_run)
    if planned.blocks:
        raise blocked_error(planned.pipeline, planned.blocks)


def _show_plan(app: App, planned: Planned, *, dry_run: bool) -> None:
    for cause in planned.abandoned:
        app.out.line(f"the open batch {'would be' if dry_run else 'was'} given up: {cause}")
    batch = planned.batch
    if batch is None:
        app.out.line(
            f"{planned.pipeline}: {'nothing planned' if planned.blocks else 'nothing new'}"
        )
        return
    app.out.line(f"{_plan_title(planned, batch, dry_run=dry_run)}: {_extent(batch)}")
    app.out.table(
        ["PARTITION", "RANGE", "OFFSETS"],
        [
            [
                str(segment.range.partition),
                span(segment.range.from_offset, segment.range.until_offset),
                number(segment.range.offsets),
            ]
            for segment in batch.segments
        ],
        numbers=["OFFSETS"],
    )


def _plan_title(planned: Planned, batch: Batch, *, dry_run: bool) -> str:
    if planned.resumed:
        verb = "would be taken up again" if dry_run else "is taken up again"
        return f"batch {batch.batch_id} of {planned.pipeline} {verb}"
    if dry_run:
        return f"{planned.pipeline}: a batch would be planned"
    return f"batch {batch.batch_id} of {planned.pipeline} is planned"


def _extent(batch: Batch) -> str:
    return f"{plural(len(batch.segments), 'partition')}, {plural(batch.offsets, 'offset')}"


def _plan_shape(planned: Planned, *, dry_run: bool) -> Shape:
    batch: Any = None
    if planned.batch is not None:
        is_new = not planned.resumed
        batch = planned_batch_shape(planned.batch, dry_run=dry_run and is_new)
    return {
        "pipeline": planned.pipeline,
        "dry_run": dry_run,
        "batch": batch,
        "resumed": planned.resumed,
        "abandoned": list(planned.abandoned),
        "blocks": [block_shape(block) for block in planned.blocks],
    }
