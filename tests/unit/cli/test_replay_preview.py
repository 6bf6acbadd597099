"""The text of a preview and the messages of a running replay."""

from dataclasses import replace
from typing import Any

import pytest
from click import unstyle
from rich.console import Console
from tests.unit.values import batch, blank, kafka, span, totals

from tally.cli.batches import REPLACES
from tally.cli.output import Output
from tally.cli.replay import batch_line, question, show_preview, summary
from tally.config.pipeline import Pipeline
from tally.counting.outcomes import Ran
from tally.ledger.contributions import Changes
from tally.ledger.records import Replaced
from tally.model import BatchKind, BatchState, ReplayState
from tally.planning.replay import Piece, Refusal, ReplayPlan
from tally.planning.replay_request import RangesAsked
from tally.reading.batches import BatchView, SegmentView
from tally.replay.preview import Preview, duration, preview_of
from tally.replay.run import ReplayOutcome
from tally.views import CountedRange, document

Captured = pytest.CaptureFixture[str]

PLAN = ReplayPlan(
    asked=(span(310, 320), span(340, 341)),
    batches=(
        (Piece(range=span(300, 330), replaces=(1, 2), never_counted=0),),
        (Piece(range=span(330, 350), replaces=(3,), never_counted=5),),
    ),
)


def preview(plan: ReplayPlan = PLAN, **values: Any) -> Preview:
    told = {
        "request": RangesAsked(ranges=PLAN.asked),
        "kafka": kafka((100, 900)),
        "minutes": (17, "2026-11-20 14:05", "2026-11-20 14:22"),
        "seconds": 12.4,
        "notes": ("by Kafka's record times",),
        **values,
    }
    pipeline = Pipeline.named("p", {"topics": ["alog"], "levels": ["ERROR", "WARN"]})
    return preview_of(pipeline, plan=plan, **told)


def shown(capsys: Captured, what: Preview, out: Output | None = None) -> list[str]:
    show_preview(out or Output(), what)
    return capsys.readouterr().out.splitlines()


def test_a_preview_says_what_is_read_and_what_is_replaced(capsys: Captured) -> None:
    """The requested and the read ranges per partition, then the totals."""
    lines = shown(capsys, preview())
    assert lines[0] == "p: alog/0 [310, 320), alog/0 [340, 341)"
    assert " ".join(lines[1].split()) == ("PARTITION ASKED READ SEGMENTS NEVER COUNTED KAFKA HOLDS")
    assert " ".join(lines[2].split()) == "alog/0 [310, 320) [300, 350) 3 5 [100, 900)"
    assert lines[3].split(maxsplit=1) == ["alog/0", "[340, 341)"]
    assert lines[4:] == [
        "to be read      50 offsets, 5 of them never counted",
        "                a segment is replaced whole, so more is read than was asked for",
        "to be replaced  3 segments",
        (
            "minutes         17 minutes of the result, 2026-11-20 14:05 to 2026-11-20 14:22; "
            "others may gain lines"
        ),
        "counted by      the current rules: levels ERROR, WARN; format fixed",
        "in              2 batches, committed one by one",
        "takes           about 12 s, at the pace of earlier batches",
        "note            by Kafka's record times",
    ]
    # Ranges that touch are read as one range of the same offsets: no more than was asked for.
    read = Piece(range=span(300, 320), replaces=(1, 2))
    plan = ReplayPlan(asked=(span(300, 310), span(310, 320)), batches=((read,),))
    assert not any("more is read" in line for line in shown(capsys, preview(plan)))


def test_a_preview_fits_a_terminal_of_eighty_columns(capsys: Captured) -> None:
    """No range of millions of offsets is broken over two lines."""
    out = Output(open_console=lambda: Console(force_terminal=True, no_color=True, width=80))
    base = 4_000_000
    read = Piece(range=span(base + 300, base + 350), replaces=(1, 2, 3), never_counted=0)
    plan = ReplayPlan(
        asked=(span(base + 310, base + 320), span(base + 340, base + 341)), batches=((read,),)
    )
    lines = shown(capsys, preview(plan, kafka=kafka((base, base + 1_000_000))), out)
    assert [unstyle(line).rstrip() for line in lines[1:4]] == [
        "PARTITION  ASKED               READ                SEGMENTS  KAFKA HOLDS",
        "alog/0     [4000310, 4000320)  [4000300, 4000350)         3  [4000000, 5000000)",
        "alog/0     [4000340, 4000341)",
    ]


def test_a_first_backfill_replaces_nothing_and_says_so(capsys: Captured) -> None:
    """The question differs as well."""
    plan = ReplayPlan(
        asked=(span(0, 10),), batches=((Piece(range=span(0, 10), never_counted=10),),)
    )
    first = preview(plan, minutes=(0, None, None), seconds=None, notes=())
    assert shown(capsys, first)[3:] == [
        "to be read      10 offsets, 10 of them never counted",
        "to be replaced  nothing",
        "counted by      the current rules: levels ERROR, WARN; format fixed",
        "in              1 batch",
        "takes           not known: no batch is committed yet",
    ]
    assert question(first) == "Count 10 offsets for the first time?"
    assert question(preview()) == ("Count 50 offsets, and replace 3 segments of the result?")


def test_a_preview_of_very_many_ranges_stays_readable(capsys: Captured) -> None:
    """Fifty rows, the number of the others, and never a cell of a hundred ranges."""
    apart = tuple(span(10 * n, 10 * n + 5) for n in range(70))
    plan = ReplayPlan(asked=apart, batches=tuple((Piece(range=r, never_counted=5),) for r in apart))
    assert "and 20 more: --json has all of them" in shown(capsys, preview(plan))
    whole = replace(plan, batches=((Piece(range=span(0, 700), replaces=(1,)),),))
    assert "70 ranges" in shown(capsys, preview(whole))[2]
    refused = replace(plan, batches=(), refusals=(Refusal(range=apart[0], cause="why"),))
    last = "the other 69 ranges could be reprocessed"
    assert shown(capsys, preview(refused, notes=()))[-1] == last


def test_the_json_of_a_preview_names_what_each_piece_replaces() -> None:
    """By the ledger's keys."""
    (piece,) = document(preview())["batches"][1]
    where = {"topic": "alog", "partition": 0, "from_offset": 330, "until_offset": 350}
    assert piece == {**where, "replaces": [3], "never_counted": 5}


def test_a_duration_is_no_more_exact_than_it_can_be() -> None:
    """It goes by the pace of earlier batches."""
    for seconds, text in (
        *((0.01, "about 1 s,"), (99, "about 99 s,"), (100, "about 2 min,")),
        *((3_600, "about 1 h 0 min,"), (3_600_000, "about 1,000 h 0 min,")),
    ):
        assert duration(seconds).startswith(text)


UNCHANGED = Changes(minutes=0, first_minute=None, last_minute=None, lines_more=0, lines_fewer=0)


def replay(**values: Any) -> ReplayOutcome:
    told = {"replay_id": 7, "pipeline": "p", "state": ReplayState.DONE, "changes": UNCHANGED}
    told |= {"batches": 2, "committed": 2, "offsets": 50, "offsets_committed": 50}
    return blank(ReplayOutcome, **{**told, **values})


def ran(partitions: int = 1, *, committed: bool = True) -> Ran:
    ranges = [span(0, 10, n) for n in range(partitions)]
    read = totals(matched=7, unmatched=2, malformed=1)
    run = batch(*ranges, batch_id=57, kind=BatchKind.REPLAY, attempt=1, claimed_by="ann")
    return Ran.of(run, {r.partition: read for r in ranges} if committed else None, 1.23)


def test_each_batch_is_told_in_one_line() -> None:
    """However many partitions it has; also when another replay was faster."""
    assert batch_line(ran(), 1, 4) == (
        "batch 57 (1 of 4) is committed: alog/0 [0, 10): 10 records, 7 matched, 1 malformed, 1.2 s"
    )
    assert "alog/2 [0, 10) and 5 more: 80 records" in batch_line(ran(8), 1, 4)
    assert batch_line(ran(committed=False), 5, 4) == (
        "batch 57 (5 of 5) was committed before, by attempt 1 of ann"
    )


def test_the_end_says_what_has_changed() -> None:
    """Lines more and fewer, and in which minutes; or that nothing has."""
    done = "replay 7 of p is done: 2 batches, 50 offsets"
    when = {"first_minute": "2026-11-20 14:05", "last_minute": "2026-11-20 14:06"}
    changes = replace(UNCHANGED, minutes=2, lines_more=3, lines_fewer=1_000, **when)
    assert summary(replay(changes=changes), [ran()]) == [
        f"{done}; read now: 10 records, 7 matched, 1 malformed",
        (
            "2 minutes of the result changed, 2026-11-20 14:05 to 2026-11-20 14:06: "
            "3 lines more, 1,000 fewer"
        ),
    ]
    assert summary(replay(), []) == [done, "no minute of the result has changed"]


def test_what_a_batch_replaces_is_named_by_its_batches() -> None:
    """All of a few, the first and the last of many."""
    for of_batches, told in (
        ([], ""),
        ([5], "1 segment of batch 5"),
        ([6, 5, 5], "3 segments of batches 5, 6"),
        (range(1, 8), "7 segments of batches 1 to 7"),
    ):
        replaced = tuple(Replaced(segment_id=n, batch_id=b) for n, b in enumerate(of_batches))
        ranges = tuple(blank(SegmentView, replaces=(one,)) for one in replaced)
        assert blank(BatchView, ranges=ranges).replaced == told
    # Nothing read is not zero records.
    assert document(CountedRange(range=span(0, 10), totals=None))["records"] is None
    assert REPLACES.keys() == set(BatchState)
