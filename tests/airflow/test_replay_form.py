"""The form of a replay, filled in well and badly; and the names of its tasks."""

from datetime import UTC, datetime
from typing import Any

import pytest
from airflow.sdk.exceptions import ParamValidationError

from tally.airflow.replay_dag import task_name
from tally.airflow.replay_form import form, read_form
from tally.config.pipeline import Pipeline
from tally.config.settings import Settings
from tally.errors import ReplayRefusedError
from tally.planning.replay_request import (
    BatchAsked,
    BoundsAsked,
    MinutesAsked,
    RangesAsked,
    TimesAsked,
    parse_range,
    parse_ranges,
)

pytestmark = pytest.mark.airflow

FIVE, SEVEN = "2026-11-20 14:05", "2026-11-20 14:07"


def pipeline() -> Pipeline:
    return Settings(pipelines={"p": Pipeline(topics=["alog", "blog"])}).pipeline("p")


def filled(**fields: Any) -> dict[str, Any]:
    """The form with its defaults, and some fields filled in; checked as Airflow does."""
    from airflow.sdk import ParamsDict

    params = ParamsDict(form(pipeline()))  # type: ignore[arg-type]
    for name, value in {"reason": "a corrected level", **fields}.items():
        params[name] = value
    return dict(params.validate())


def at(hour: int) -> datetime:
    return datetime(2026, 11, 20, hour, 5, tzinfo=UTC)


def test_each_choice_reads_its_own_fields() -> None:
    both = {"from_offset": 3, "until_offset": 5}
    times = {"since": "2026-11-20T14:05:00Z", "before": "2026-11-20T15:05"}
    cases: list[tuple[dict[str, Any], object]] = [
        ({}, BoundsAsked()),
        ({"topic": "alog", "partitions": "3, 0"}, BoundsAsked(topic="alog", partitions=(0, 3))),
        ({"what": "offsets", "from_offset": 0}, BoundsAsked(from_offset=0)),
        ({"what": "offsets", "partitions": "1", **both}, BoundsAsked(partitions=(1,), **both)),
        ({"what": "ranges", "ranges": "a/0:3-5"}, RangesAsked(ranges=parse_ranges("a/0:3-5"))),
        ({"what": "times", **times}, TimesAsked(since=at(14), before=at(15))),
        ({"what": "batch", "batch_id": 42}, BatchAsked(batch_id=42)),
        ({"what": "minutes", "first_minute": FIVE}, MinutesAsked(first=FIVE, last=FIVE)),
        (
            {"what": "minutes", "first_minute": FIVE, "last_minute": SEVEN},
            MinutesAsked(first=FIVE, last=SEVEN),
        ),
    ]
    for fields, wanted in cases:
        assert read_form(filled(**fields)) == wanted


def test_a_form_that_contradicts_itself_is_refused() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"what": "offsets"}, "neither from_offset nor until_offset"),
        ({"what": "everything", "from_offset": 3}, "from_offset = 3 does not belong"),
        ({"what": "batch", "batch_id": 1, "topic": "alog"}, "topic = 'alog' does not belong"),
        ({"what": "batch"}, "batch_id is not given"),
        ({"what": "ranges"}, "ranges is not given"),
        ({"what": "ranges", "ranges": "alog/0:3-5\nalog 0 3 5"}, "line 2: 'alog 0 3 5'"),
        ({"what": "ranges", "ranges": "alog/0:5-5"}, "ranges: line 1: 'alog/0:5-5' is empty"),
        ({"what": "times", "since": "2026-11-20T14:05:00Z"}, "before is not given"),
        ({"what": "minutes", "first_minute": "14:05"}, "'14:05' is not a minute"),
        ({"partitions": "all"}, "partitions = 'all' are not numbers"),
        ({"partitions": "-1"}, "partitions = '-1' are not numbers"),
    ]
    for fields, said in cases:
        with pytest.raises(ReplayRefusedError) as refused:
            read_form(filled(**fields))
        assert said in str(refused.value)


def test_airflow_refuses_what_no_field_allows() -> None:
    """It does so before it creates a run: also one without a reason, real or dry."""
    fields = [{"what": "all"}, {"from_offset": -1}, {"batch_id": 0}]
    fields += [{"shown": {"asked": 7}}, {"shown": {"asked": [7], "digest": "a", "plan": "b"}}]
    for wrong in [*fields, *({"reason": text} for text in ("x" * 1001, None, "", " \n"))]:
        with pytest.raises(ParamValidationError):
            filled(**wrong)


def test_every_field_has_words_and_all_but_the_first_a_section() -> None:
    """A form is read by people; Airflow opens the fields without a section, and no other."""
    for name, field in form(pipeline()).items():
        assert field.description, name
        assert field.schema["title"]
        assert ("section" in field.schema) == (name not in {"what", "dry_run", "reason"})


def test_the_task_of_a_batch_has_a_short_name() -> None:
    for ranges, said in (
        ("alog/3:300-301", "1 offset of alog/3"),
        (" ".join(f"alog/{n}:0-3610" for n in range(4)), "14,440 offsets of alog/0-3"),
        ("blog/0:0-5 alog/7:0-5 alog/9:0-5 alog/8:0-5", "20 offsets of alog/7-9, blog/0"),
        (" ".join(f"alog/{2 * n}:0-5" for n in range(9)), "45 offsets of 9 partitions"),
        (f"{'a' * 249}/0:0-5", "5 offsets of 1 partition"),
    ):
        name = task_name(23, list(map(parse_range, ranges.split())))
        assert name == f"batch 23: {said}"
        assert len(name) < 60
