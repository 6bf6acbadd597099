"""What a replay would do, shown so that a person can agree to it."""

from collections.abc import Sequence
from typing import Final

from tally.cli.ui.output import Output
from tally.cli.ui.values import ABSENT, number, span
from tally.formatting import plural, time_span
from tally.model import OffsetRange, TopicPartition
from tally.pipeline.replay_plan import Preview
from tally.planning.replay import overlap

ROWS_SHOWN: Final = 50
RANGES_TOLD_APART: Final = 3


def show_preview(out: Output, preview: Preview) -> None:
    """Write the preview to stdout: what is read per partition, then what it means in all."""
    out.line(f"{preview.pipeline}: {preview.request}")
    if preview.plan.refusals:
        _show_refusals(out, preview)
    elif preview.plan.batches:
        _show_ranges(out, preview)
        for name, value in facts(preview):
            out.line(f"{name:16}{value}")
    for note in preview.notes:
        out.line(f"{'note':16}{note}")


def question(preview: Preview) -> str:
    """What the person is asked: the offsets, and what is lost of what is there now."""
    replaced = len(preview.plan.replaces)
    if not replaced:
        return f"Count {plural(preview.offsets, 'offset')} for the first time?"
    return (
        f"Count {plural(preview.offsets, 'offset')}, and replace {plural(replaced, 'segment')} "
        "of the result by that?"
    )


def facts(preview: Preview) -> list[tuple[str, str]]:
    """The preview in a few lines: what is read and replaced, by which rules, in which time."""
    replaced = len(preview.plan.replaces)
    never = f", {number(preview.uncounted)} of them never counted" if preview.uncounted else ""
    found = [("to be read", f"{plural(preview.offsets, 'offset')}{never}")]
    if preview.plan.is_wider and replaced:
        found.append(("", "a segment is replaced whole, so READ is wider than ASKED"))
    found.append(("to be replaced", plural(replaced, "segment") if replaced else "nothing"))
    if replaced:
        found.append(("minutes", minutes_in_words(preview)))
    found.append(("counted by", f"the rules of now: {preview.rules}"))
    steps = len(preview.plan.batches)
    found.append(("in", plural(steps, "batch") + (", committed one by one" if steps > 1 else "")))
    found.append(("takes", duration(preview.seconds)))
    return found


def minutes_in_words(preview: Preview) -> str:
    """Which minutes have lines of what is replaced."""
    if not preview.minutes:
        return "none has lines of it so far"
    return (
        f"{plural(preview.minutes, 'minute')} of the result, "
        f"{time_span(preview.first_minute, preview.last_minute)}; others may gain lines"
    )


def duration(seconds: float | None) -> str:
    """``about 12 s``, ``about 3 min``, ``about 2 h 5 min``; by the pace of earlier batches."""
    if seconds is None:
        return "not known: no batch was committed before"
    if seconds < 100:
        return f"about {max(1, round(seconds))} s, at the pace of earlier batches"
    minutes = round(seconds / 60)
    hours = f"{minutes // 60:,} h " if minutes >= 60 else ""
    return f"about {hours}{minutes % 60} min, at the pace of earlier batches"


def _show_ranges(out: Output, preview: Preview) -> None:
    # Ranges of seven digits fit into 80 columns; what is nothing everywhere is left out.
    numbers = ["SEGMENTS", *(["NEVER COUNTED"] if preview.uncounted else [])]
    rows = [
        row for read in preview.plan.widened[:ROWS_SHOWN] for row in _rows(preview, read, numbers)
    ]
    out.table(["PARTITION", "ASKED", "READ", *numbers, "KAFKA HOLDS"], rows, numbers=numbers)
    _say_what_is_left_out(out, len(preview.plan.widened))


def _rows(preview: Preview, read: OffsetRange, numbers: Sequence[str]) -> list[list[str]]:
    """What is read, with the first range that was asked of it; the others on lines of their own."""
    asked = [r for r in preview.plan.asked if r.partition == read.partition and overlap(r, read)]
    pieces = [
        piece
        for piece in preview.plan.pieces
        if piece.range.partition == read.partition and overlap(piece.range, read)
    ]
    values = {
        "SEGMENTS": number(sum(len(piece.replaces) for piece in pieces)),
        "NEVER COUNTED": number(sum(piece.uncounted for piece in pieces)),
    }
    first, *others = _spans(asked)
    where, read_as = str(read.partition), span(read.from_offset, read.until_offset)
    told = [values[name] for name in numbers]
    return [
        [where, first, read_as, *told, _held(preview, read.partition)],
        *([where, other, "", *("" for _ in told), ""] for other in others),
    ]


def _show_refusals(out: Output, preview: Preview) -> None:
    refusals = preview.plan.refusals
    out.table(
        ["PARTITION", "REFUSED", "KAFKA HOLDS", "WHY"],
        [
            [
                str(refusal.range.partition),
                span(refusal.range.from_offset, refusal.range.until_offset),
                _held(preview, refusal.range.partition),
                refusal.cause,
            ]
            for refusal in refusals[:ROWS_SHOWN]
        ],
    )
    _say_what_is_left_out(out, len(refusals))
    if fine := len(preview.plan.asked) - len(refusals):
        out.line(f"the other {plural(fine, 'range')} could be counted again")


def _say_what_is_left_out(out: Output, rows: int) -> None:
    if rows > ROWS_SHOWN:
        out.line(f"and {rows - ROWS_SHOWN:,} more: --json has all of them")


def _spans(ranges: Sequence[OffsetRange]) -> list[str]:
    if len(ranges) > RANGES_TOLD_APART:
        return [f"{len(ranges):,} ranges"]
    return [span(r.from_offset, r.until_offset) for r in ranges]


def _held(preview: Preview, partition: TopicPartition) -> str:
    held = preview.held.get(partition)
    return ABSENT if held is None else span(*held)
