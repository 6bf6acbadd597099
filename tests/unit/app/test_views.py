"""The JSON that other programs rely on: keys and kinds of values."""

from dataclasses import replace

from tests.unit.values import P0, batch, blank, span

from tally.audit.audit import AuditView, concluded
from tally.audit.recount import Recount, Unchecked
from tally.counting.outcomes import Ran
from tally.counting.plan import Planned, PlannedBatch
from tally.counting.run import RunView, are_cut
from tally.ledger.dead_letters import DeadLetterRecord
from tally.ledger.invariants import Violation
from tally.ledger.results import ResultRow
from tally.model import SegmentTotals
from tally.reading.counts import Outdated
from tally.reading.dead_letters import DeadLetterView
from tally.status.state import PartitionStatus
from tally.views import CountedRange, document

RANGE = span(300, 310)
FRESH = batch(RANGE)
HOLE = replace(FRESH, segments=(replace(FRESH.segments[0], missing_accepted=True),))


def test_a_batch_carries_its_ranges_and_an_id_if_it_has_one() -> None:
    """Half-open ranges under the ledger's names; a dry run rolls the id back."""
    shape = document(PlannedBatch.of(FRESH, is_written=True))
    assert (shape["batch_id"], shape["planned_at"]) == (7, "2026-11-20T14:00:00Z")
    assert shape["ranges"] == [
        {"topic": "alog", "partition": 0, "from_offset": 300, "until_offset": 310}
    ]
    unwritten = PlannedBatch.of(FRESH, is_written=False)
    assert document(unwritten)["batch_id"] is None
    planned = {"pipeline": "p", "dry_run": True, "batches": (unwritten,)}
    assert "a batch would be planned" in blank(Planned, **planned).title


def test_a_dead_letter_carries_its_exact_bytes() -> None:
    """Base64 for programs, an escaped text for people, null for a record without a value."""
    letter = DeadLetterRecord(
        batch_id=7, partition=P0, offset=301, reason="layout", value=b"\xff\x1b", value_bytes=2
    )
    empty = replace(letter, reason="null", value=None, value_bytes=None)
    shapes = [document(DeadLetterView.of(each)) for each in (letter, empty)]
    assert [shape["value_base64"] for shape in shapes] == ["/xs=", None]
    assert [shape["value"] for shape in shapes] == ["\\xff\\x1b", None]


def test_what_a_result_does_not_have_is_absent() -> None:
    """Labels and bytes; a range, a partition and totals lie flat in the record that has them."""
    plain = ResultRow(log_time="2026-11-20 14:00:00", labels={}, log_count=0, log_bytes=None)
    assert document(plain) == {"log_time": "2026-11-20 14:00:00", "log_count": 0}
    whole = replace(plain, labels={"level": "ERROR"}, log_bytes=0)
    assert document(whole).keys() == {"log_time", "labels", "log_count", "log_bytes"}
    flat = {"topic": "alog", "partition": 0, "from_offset": 300, "until_offset": 310}
    status = blank(PartitionStatus, partition=P0, open_loss=RANGE)
    assert document(status)["open_loss"] == flat
    assert document(status)["partition"] == 0


def test_no_continuation_line_is_called_well_formed() -> None:
    """Where no line matched, only those are counted that could have."""
    found = {}
    for of_batch in ((5, 0, 1, 2), (1, 0, 0, 1), (1, 0, 1, 0), (5, 1, 0, 0)):
        records, matched, malformed, left_out = of_batch
        totals = SegmentTotals(
            records=records,
            matched=matched,
            unmatched=records - matched - malformed,
            malformed=malformed,
            continuations=left_out,
        )
        ran = blank(Ran, ranges=(CountedRange(range=RANGE, totals=totals),))
        found[of_batch] = RunView(pipeline="p", batches=(ran,), blocks=()).unmatched
    assert list(found.values()) == [2, 0, 0, 0]


VIOLATION = Violation(check="tiling", where="alog/0", detail="hole: [3, 5)")
CHECKED = {"partitions": 1, "segments": 2, "records": 3, "minutes": 4, "matched": 5}
COUNTED = Recount(
    complete=True, segments=1, offsets=10, records=10, not_checkable=(), before_start=()
)


def audited(again: Recount | None = COUNTED, *violations: Violation) -> AuditView:
    return concluded("p", CHECKED, violations, again)


def test_an_audit_holds_only_if_nothing_was_found() -> None:
    """With a recount or without."""
    assert document(audited(None))["holds"] is True
    shape = document(audited(COUNTED, VIOLATION))
    assert shape["holds"] is False
    assert shape["findings"] == [{"check": "tiling", "where": "alog/0", "detail": "hole: [3, 5)"}]
    assert audited(None, VIOLATION, VIOLATION).conclusion.startswith("2 violations")


def test_an_audit_never_claims_more_than_it_looked_at() -> None:
    """Without a recount, and with gaps in it, the sentence and the document say so."""
    assert "--recount" in audited(None).conclusion
    assert "record for record" in audited().conclusion
    gap = Unchecked(range=RANGE, cause="retention")
    gaps = audited(replace(COUNTED, complete=False, not_checkable=(gap,)))
    assert "all that could be compared" in gaps.conclusion
    partly = document(gaps)["recount"]
    assert partly["complete"] is False
    assert partly["not_checkable"][0]["cause"] == "retention"
    # Thousands of segments that retention took are one line for each partition.
    ranges = (span(0, 10), span(10, 20), span(0, 5, 4))
    many = tuple(Unchecked(range=each, cause="retention") for each in ranges)
    view = replace(COUNTED, not_checkable=many)
    assert view.unchecked_offsets == [("alog/0: retention", 20), ("alog/4: retention", 5)]


def test_a_recount_that_compared_nothing_is_a_finding() -> None:
    """Of another cluster, say; a pipeline that has counted nothing has nothing to prove."""
    gap = Unchecked(range=RANGE, cause="another cluster")
    none = replace(COUNTED, segments=0, offsets=0, records=0)
    view = audited(replace(none, complete=False, not_checkable=(gap,)))
    assert not view.holds
    assert [(f.check, f.where) for f in view.findings] == [("recount", "p")]
    assert "another cluster" in view.findings[0].detail
    assert audited(none).holds


def test_run_all_continues_after_a_batch_that_was_cut() -> None:
    """It has caught up when a batch took everything; an accepted hole is read by itself."""
    cases = (([FRESH], 1_000), ([FRESH], 10), ([HOLE], 1_000), ([], 1))
    assert [are_cut(*case) for case in cases] == [False, True, True, False]


def test_minutes_outside_the_longest_span_are_not_passed_over() -> None:
    """Of three minutes one is gone and one is brought up to date: that is not said to be all."""
    span = {"first_minute": "2026-11-20 00:14", "last_minute": "2026-11-20 00:16"}
    some = Outdated(minutes=3, **span, gone=1, replayed=1, replay="tally replay …")
    assert "; 1 minute, the longest span, can be brought up to date with" in str(some)
    assert "; 1 minute can be brought up to date with" in str(replace(some, minutes=2))
