"""Showing what a replay would do, and the question that asks the operator to confirm it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tally.cli.output import Output, number
from tally.formatting import ABSENT, plural
from tally.model import OffsetRange
from tally.planning.replay import Held
from tally.reading.columns import PLACE, SPAN, TEXT, Column
from tally.replay.preview import Preview

ROWS_SHOWN: Final = 50
RANGES_TOLD_APART: Final = 3
REFUSAL: Final = (
    PLACE,
    replace(SPAN, header="REFUSED"),
    Column("kafka_holds", "", "KAFKA HOLDS", of=lambda refusal: _held(refusal.kafka_holds)),
    Column("cause", "", "WHY", TEXT),
)


def show_preview(out: Output, preview: Preview) -> None:
    """Write the preview to stdout: what is read per partition, then the totals."""
    out.line(f"{preview.pipeline}: {preview.request}")
    if refusals := preview.refusals:
        out.records(REFUSAL, refusals[:ROWS_SHOWN])
        out.left_out(len(refusals) - ROWS_SHOWN)
        if fine := len(preview.asked) - len(refusals):
            out.line(f"the other {plural(fine, 'range')} could be reprocessed")
    elif preview.batches:
        _show_ranges(out, preview)
        for name, value in preview.facts:
            out.line(f"{name:16}{value}")
    for note in preview.notes:
        out.line(f"{'note':16}{note}")


def question(preview: Preview) -> str:
    """The question to the operator: how many offsets to count, how many segments to replace."""
    replaced = preview.segments_replaced
    if not replaced:
        return f"Count {plural(preview.offsets, 'offset')} for the first time?"
    return (
        f"Count {plural(preview.offsets, 'offset')}, and replace {plural(replaced, 'segment')} "
        "of the result?"
    )


def _show_ranges(out: Output, preview: Preview) -> None:
    # Ranges of seven digits fit into 80 columns; a column that would be empty is left out.
    numbers = ["SEGMENTS", *(["NEVER COUNTED"] if preview.never_counted else [])]
    rows = []
    for read in preview.read[:ROWS_SHOWN]:
        place, (first, *others) = read.range.place, _spans(read.asked)
        values = [number(read.segments_replaced), number(read.never_counted)][: len(numbers)]
        rows.append([place, first, read.range.span, *values, _held(read.kafka_holds)])
        # Further requested ranges in it have lines of their own.
        rows += [[place, other, *([""] * (len(values) + 2))] for other in others]
    out.table(["PARTITION", "ASKED", "READ", *numbers, "KAFKA HOLDS"], rows, numbers=numbers)
    out.left_out(len(preview.read) - ROWS_SHOWN)


def _spans(ranges: Sequence[OffsetRange]) -> list[str]:
    if len(ranges) > RANGES_TOLD_APART:
        return [f"{len(ranges):,} ranges"]
    return [r.span for r in ranges]


def _held(held: Held | None) -> str:
    return ABSENT if held is None else held.span
