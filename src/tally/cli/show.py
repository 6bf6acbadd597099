"""``show``: one batch with its ranges and counts."""

from typing import Any

import click

from tally.cli.app import App
from tally.cli.command import Command
from tally.cli.counts import show_rows
from tally.cli.options import (
    batch_argument,
    json_option,
    pass_app,
)
from tally.cli.places import REPLACES, Places
from tally.cli.shapes import batch_shape, replay_shape, row_shape, segment_shape
from tally.cli.ui.values import ABSENT, moment, number, span
from tally.formatting import plural
from tally.ledger.reading import (
    BatchRecord,
    SegmentRecord,
    batch_record,
    count_minutes,
    segments_of,
    top_rows,
)
from tally.ledger.replacements import replaced_by, successors_of
from tally.ledger.replays import ReplayRecord, find_replay
from tally.ledger.tables import tables_of_batch


@click.command(cls=Command, examples=["tally show 42", "tally show 42 --minutes 100 --json"])
@batch_argument
@click.option(
    "--minutes",
    type=click.IntRange(min=0, max=1_000_000),
    default=10,
    show_default=True,
    help="Minutes at most, those with most lines first.",
)
@json_option
@pass_app
def show(app: App, batch_id: int, minutes: int) -> None:
    """Show one batch with its ranges and counts.

    Who planned, claimed, committed or abandoned it and when, with which version and rules (a
    fingerprint of line format and levels); what each range held; and the minutes that it added
    most to. Of a replay's batch also what was asked for, and how many segments each range replaces;
    of any batch what superseded it.
    """
    with app.context.database.transaction(isolation="repeatable read", read_only=True) as tx:
        batch = batch_record(tx, batch_id)
        segments = segments_of(tx, batch_id)
        touched = count_minutes(tx, batch_id)
        top = top_rows(tx, batch_id, minutes)
        tables = tables_of_batch(tx, batch_id)
        replay = None if batch.replay_id is None else find_replay(tx, batch.replay_id)
        places = Places(replaced=replaced_by(tx, batch_id), successors=successors_of(tx, batch_id))
    if app.out.as_json:
        app.out.document(
            {
                **batch_shape(batch),
                "replay": replay and replay_shape(replay),
                "ranges": [
                    {**segment_shape(segment), **places.shape(segment.segment_id)}
                    for segment in segments
                ],
                "minutes_touched": touched,
                "minutes": [row_shape(row) for row in top],
            }
        )
        return
    _show_batch(app, batch, replay, places)
    _show_segments(app, segments, places)
    if touched:
        app.out.line()
        show_rows(app.out, tables, top)
        shown = len({row.log_time for row in top})
        app.out.line(f"{shown:,} of {plural(touched, 'minute')} shown")


def _show_batch(app: App, batch: BatchRecord, replay: ReplayRecord | None, places: Places) -> None:
    facts: list[tuple[str, Any]] = [
        ("batch", f"{batch.batch_id}, {batch.kind} of {batch.pipeline}"),
        ("replay", replay and f"{replay.replay_id}, {replay.request}: {replay.reason}"),
        (REPLACES[batch.state], places.replaced and places.in_words),
        ("state", f"{batch.standing}, attempt {batch.attempt}"),
        ("planned", f"{moment(batch.planned_at)} by {batch.requested_by}"),
        ("planned with", f"tally {batch.planned_version}"),
        ("run id", batch.run_id),
        ("claimed", batch.claimed_at and f"{moment(batch.claimed_at)} by {batch.claimed_by}"),
        ("committed", batch.committed_at and moment(batch.committed_at)),
        (
            "counted with",
            batch.committed_version
            and f"tally {batch.committed_version}, rules {batch.format_fingerprint}",
        ),
        (
            "abandoned",
            batch.abandoned_at and f"{moment(batch.abandoned_at)} by {batch.abandoned_by}",
        ),
        ("reason", batch.reason),
        ("offsets", number(batch.offsets)),
        ("records", batch.records is not None and _sums(batch)),
    ]
    for name, value in facts:
        if value:
            app.out.line(f"{name:14}{value}")


def _sums(batch: BatchRecord) -> str:
    return (
        f"{number(batch.records)}: {number(batch.matched)} matched, "
        f"{number(batch.unmatched)} at other levels, {number(batch.malformed)} malformed"
    )


def _show_segments(app: App, segments: list[SegmentRecord], places: Places) -> None:
    app.out.line()
    numbers = ["SEGMENT", "RECORDS", "MATCHED", "MALFORMED", "REPLACES"]
    app.out.table(
        ["SEGMENT", "PARTITION", "RANGE", "STATE", *numbers[1:], "SUPERSEDED BY"],
        [
            [
                str(segment.segment_id),
                str(segment.range.partition),
                span(segment.range.from_offset, segment.range.until_offset),
                str(segment.state),
                number(segment.totals.records if segment.totals else None),
                number(segment.totals.matched if segment.totals else None),
                number(segment.totals.malformed if segment.totals else None),
                number(len(places.of(segment.segment_id)) or None),
                f"{segment.superseded_by} of batch {places.successors.get(segment.segment_id)}"
                if segment.superseded_by
                else ABSENT,
            ]
            for segment in segments
        ],
        numbers=numbers,
    )
