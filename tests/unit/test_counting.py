"""The checks that a read has found what was planned, and its counts as rows of the tables."""

from types import SimpleNamespace
from typing import Any, NamedTuple, NoReturn

import pytest
from py4j.protocol import Py4JError
from tests.unit.values import P0, batch, pipeline, span, totals

from tally.aggregates.aggregate import MEASURES, Aggregate, fingerprint
from tally.aggregates.checks import SeriesLimit, check_totals
from tally.aggregates.counts import Contribution, CountRequest
from tally.aggregates.gathering import Gathering
from tally.aggregates.spool import Spool
from tally.config.servers import KafkaSettings
from tally.counting.run import together
from tally.errors import (
    DataLossError,
    MalformedFloodError,
    ReadError,
    RecordsMissingError,
    SeriesFloodError,
)
from tally.ledger.contributions import rows_of
from tally.ledger.tables import LabelColumn, Tables
from tally.model import SegmentTotals
from tally.spark.counting import SparkReader

RANGE = span(10, 20)


def read(records: int, first: int | None, last: int | None, malformed: int = 0) -> SegmentTotals:
    """Totals of a read; every well-formed line is counted."""
    return totals(records - malformed, 0, malformed, first, last)


def check(found: SegmentTotals, *, accepted: bool = False, **settings: object) -> None:
    check_totals(pipeline(**settings), [RANGE], {P0: found}, may_miss=[P0] if accepted else [])


def test_records_from_outside_of_the_range_are_refused() -> None:
    """Before or after it, or more than it can hold; as many from first to last are right."""
    check(read(10, 10, 19))
    for offsets, outside in (
        ("dense", [read(10, 9, 18), read(10, 10, 20), read(11, 10, 19)]),
        ("sparse", [read(3, 9, 15), read(3, 12, 20), read(11, 10, 19)]),
    ):
        for found in outside:
            with pytest.raises(DataLossError, match=r"alog/0 \[10, 20\): \d+ records of 10") as no:
                check(found, offsets=offsets)
            assert not isinstance(no.value, RecordsMissingError)


def test_a_dense_range_that_is_short_and_a_flood_are_named() -> None:
    """A hole in it, at its start or at its end is an error, unless an operator accepted it."""
    for found in (read(9, 10, 19), read(9, 11, 19), read(9, 10, 18)):
        with pytest.raises(RecordsMissingError) as missing:
            check(found)
        assert list(missing.value.ranges) == [RANGE]
        check(found, accepted=True)
        check(found, offsets="sparse")
    with pytest.raises(RecordsMissingError, match="0 records of 10, none"):
        check(read(0, None, None))
    check(read(0, None, None), offsets="sparse")  # an aborted transaction leaves such a range
    # One malformed record more than the limit is an error.
    check(read(10, 10, 19, malformed=4), max_malformed_per_batch=4)
    leaving = {"name": "json", "default_level": "INFO"}
    for line_format, may_lack in (("fixed", False), ("json", True), (leaving, False)):
        with pytest.raises(MalformedFloodError, match="5 of 10 records are malformed") as flood:
            check(read(10, 10, 19, malformed=5), max_malformed_per_batch=4, line_format=line_format)
        assert ("default_level" in str(flood.value.next_step)) == may_lack


def test_whatever_is_counted_by_is_in_the_fingerprint() -> None:
    """With all else set; the order of what is written has no meaning."""
    rules = {
        "line_format": "log4j",
        "levels": ["ERROR", "WARN"],
        "time": "record",
        "time_zone": "Europe/Berlin",
        "filter": {"topic": ["b", "a"], "logger": ["x"]},
        "continuation_lines": "unmatched",
        "labels": ["topic", "logger"],
        "label_max_chars": 20,
        "measure": "bytes",
    }
    swapped = {"filter": {"logger": ["x"], "topic": ["a", "b"]}, "levels": ["WARN", "ERROR"]}
    whole = fingerprint(pipeline(**rules))
    assert whole == fingerprint(pipeline(**{**rules, **swapped, "labels": ["logger", "topic"]}))
    without = [{k: v for k, v in rules.items() if k != key} for key in rules]
    without += [{**rules, "filter": {"topic": ["a"], "logger": ["x"]}}]
    found = {fingerprint(pipeline(**other)) for other in without}
    assert len(found - {whole}) == len(without)


class Row(NamedTuple):
    """A row of counted lines, with the Unix times of its first and last record."""

    first_s: int
    last_s: int


def check_series(rows: list[Row]) -> None:
    """Check rows against a limit of ten for the records of one minute."""
    limit = SeriesLimit(pipeline(labels=["topic"], max_series_per_batch=10))
    for row in rows:
        limit.add(*row)
    limit.check()


NOW_S = 1_501_423_748


def test_a_catch_up_may_give_as_many_as_its_minute_batches() -> None:
    """Whenever in the minute these would have begun; the records of one minute no more."""
    check_series([Row(NOW_S, NOW_S + 60)] * 10)
    with pytest.raises(SeriesFloodError, match="11 rows"):
        check_series([Row(NOW_S, NOW_S + 60)] * 11)
    for phase_s in range(0, 60, 7):
        begins = [NOW_S + phase_s + 60 * minute for minute in range(9)]
        check_series([Row(at + (n * 6) % 60, at + 59) for at in begins for n in range(10)])
        check_series([Row(at, begins[-1] + 59) for at in begins for _ in range(10)])


def test_a_record_with_a_wrong_timestamp_does_not_lift_the_limit() -> None:
    """It may stand for one minute more."""
    for wrong_s in (-1, 0, 253_402_300_799):
        with pytest.raises(SeriesFloodError, match="42 rows"):
            check_series([Row(NOW_S, NOW_S + 30)] * 41 + [Row(wrong_s, wrong_s)])


MINUTE = "2017-07-30 14:09:00"
LABELLED = Aggregate(
    labels=("service", "level"),
    columns=("service", "level"),
    label_chars=64,
    measures=MEASURES["bytes"],
)


def contribution(*labels: str) -> Contribution:
    keys = {"partition": P0, "log_time": MINUTE, "sums": (3, 90)}
    return Contribution(**keys, labels=labels)  # type: ignore[arg-type]


def test_a_row_has_the_order_of_the_tables_columns() -> None:
    """Label columns keep the order in which they were added, one that was taken out as well."""
    for columns, key in (
        (("service", "level"), ("cart", "ERROR")),
        (("level", "service"), ("ERROR", "cart")),
        (("host", "level", "service"), ("", "ERROR", "cart")),
    ):
        labels = tuple(LabelColumn(column=column, chars=64) for column in columns)
        tables = Tables(result="result", labels=labels, measures=MEASURES["bytes"])
        found = list(rows_of(tables, LABELLED, [contribution("cart", "ERROR")]))
        assert found == [(contribution("cart", "ERROR"), (MINUTE, *key), (3, 90))]
    # Values for other labels or measures make no row: they could get into another one's column.
    for labels in (("cart",), ("cart", "ERROR", "web-1")):
        with pytest.raises(ValueError, match="for 2 labels"):
            list(rows_of(Tables(result="result"), LABELLED, [contribution(*labels)]))
    with pytest.raises(ValueError, match="2 sums for log_count:"):
        list(rows_of(Tables(result="result"), LABELLED, [contribution("cart", "ERROR")]))


def bad(partition: int, malformed: int) -> dict[str, Any]:
    """A group of malformed records from offset 0 on."""
    offsets = {"first_offset": 0, "last_offset": malformed - 1}
    offsets |= {"first_malformed": 0, "last_malformed": malformed - 1}
    keys = {"topic": "alog", "partition": partition, "from_offset": 0, "minute": None}
    sums = {
        "records": malformed,
        "malformed": malformed,
        "continuations": 0,
        "kept_bytes": malformed,
    }
    return {**keys, **sums, **offsets}


def test_a_recount_reads_no_dead_letters_that_it_does_not_compare() -> None:
    """Of a range with too many none is read again."""
    ranges = [span(0, 9), span(0, 9, 1)]
    request = CountRequest(pipeline=pipeline(), ranges=ranges, parts=ranges, letters_max=2)
    with Spool[Contribution]() as contributions:
        gathering = Gathering(request, contributions)
        for group in (bad(0, 2), bad(1, 3)):
            gathering.add(list(group), [list(group.values())])
        assert gathering.malformed == [span(0, 2)]
        assert gathering.malformed_bytes == 2 + 2 * 128


def test_a_spark_that_is_gone_before_its_progress_is_watched_could_not_read() -> None:
    """It died between two calls; the same call may succeed later."""

    def status_tracker() -> NoReturn:
        raise Py4JError("An error occurred while calling o67.statusTracker")

    context = SimpleNamespace(_gateway=SimpleNamespace(), statusTracker=status_tracker)
    session: Any = SimpleNamespace(sparkContext=context)
    reader = SparkReader(session=session, kafka=KafkaSettings(), on_read=lambda *_: None)
    request = CountRequest(pipeline=pipeline(), ranges=[RANGE])
    with pytest.raises(ReadError, match=r"alog/0 \[10, 20\)"):
        list(reader.count_each([request], lambda *_: None))


def test_a_batch_that_was_pruned_is_run_by_itself() -> None:
    """Of its likes each partition has its turn once; what has no segments has none of them."""
    first, again, other, whole, pruned = (
        batch(*ranges, batch_id=number, is_of_partition=number != 4)
        for number, ranges in enumerate(
            [[span(0, 2)], [span(2, 4)], [span(0, 1, 1)], [span(0, 2)], []], start=1
        )
    )
    found = [first, again, other, whole, pruned]
    assert together(found, 1) == [first, other]
    assert together(found, 2) == [again, other]
    assert together(found, 4) == [whole]
    assert together(found, 5) == [pruned]
