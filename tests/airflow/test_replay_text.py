"""The texts of a replay's tasks, for every kind of request."""

import pytest

from tally.airflow.replay_work import Shown, task_name
from tally.app.preview import preview_view
from tally.app.views import RangeView
from tally.model import OffsetRange, TopicPartition
from tally.pipeline.replay_plan import Preview
from tally.planning.replay import Piece, ReplayPlan

pytestmark = pytest.mark.airflow


def span(start: int, until: int, partition: int = 3, topic: str = "alog") -> OffsetRange:
    """A range of one partition."""
    here = TopicPartition(topic=topic, partition=partition)
    return OffsetRange(partition=here, from_offset=start, until_offset=until)


def preview(*asked: OffsetRange, read: OffsetRange) -> Preview:
    """A replay that reads one range."""
    return Preview(
        pipeline="p",
        request="as asked",
        digest="0",
        plan=ReplayPlan(asked=asked, batches=((Piece(range=read, replaces=(1, 2)),),)),
        rules="levels ERROR, WARN; format fixed",
        fingerprint="0" * 16,
        minutes=2,
        first_minute="2026-11-20 14:05",
        last_minute="2026-11-20 14:06",
        held={},
        seconds=None,
        notes=(),
    )


def says(what: Preview) -> str:
    """The sentences of a preview."""
    return "\n".join(Shown.of(preview_view(what), batches_max=9).says)


def test_more_is_said_to_be_read_only_where_more_is_read() -> None:
    """Adjacent ranges are read as one range of the same offsets."""
    touching = preview(span(300, 310), span(310, 320), read=span(300, 320))
    assert "more is read" not in says(touching)
    wider = preview(span(300, 310), span(315, 320), read=span(300, 320))
    assert "a segment is replaced whole, so more is read than was asked for" in says(wider)
    assert "requested: alog/3 [300, 310), alog/3 [315, 320)" in says(wider)


def test_other_minutes_are_said_to_gain_lines_only() -> None:
    """What has counted nothing for a minute cannot take lines from it."""
    text = says(preview(span(300, 320), read=span(300, 320)))
    assert (
        "minutes: 2 minutes of the result, 2026-11-20 14:05 to 2026-11-20 14:06; "
        "others may gain lines"
    ) in text


def test_the_current_rules_are_named() -> None:
    """Most replays are made because the rules have changed."""
    text = says(preview(span(300, 320), read=span(300, 320)))
    assert "counted by: the current rules: levels ERROR, WARN; format fixed" in text


@pytest.mark.parametrize(
    ("ranges", "name"),
    [
        ([span(300, 301)], "batch 23: 1 offset of alog/3"),
        ([span(0, 3_610, n) for n in range(4)], "batch 23: 14,440 offsets of alog/0-3"),
        (
            [span(0, 5, 0, "blog"), span(0, 5, 7), span(0, 5, 9), span(0, 5, 8)],
            "batch 23: 20 offsets of alog/7-9, blog/0",
        ),
        ([span(0, 5, 2 * n) for n in range(9)], "batch 23: 45 offsets of 9 partitions"),
        ([span(0, 5, 0, "a" * 249)], "batch 23: 5 offsets of 1 partition"),
    ],
)
def test_the_task_of_a_batch_has_a_short_name(ranges: list[OffsetRange], name: str) -> None:
    """It stays short with many partitions and with a long topic name."""
    assert task_name(23, list(map(RangeView.of, ranges))) == name
    assert len(name) < 60
