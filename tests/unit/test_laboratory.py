"""The laboratory's checker; that a fault has struck is checked by each of its runs."""

import pytest
from benchmarks.laboratory.bench import LINES, Verdict, judge, minutes


def test_what_is_missing_is_lost_and_what_is_more_is_doubled() -> None:
    """Each line has a minute of its own; a minute of no line is an error of the laboratory."""
    assert len(set(minutes())) == LINES
    counts = dict.fromkeys(minutes(), 1)
    assert str(judge(counts)) == "exact"
    first, second, third, *_ = minutes()
    del counts[second]
    counts |= {first: 4, third: 0}
    assert judge(counts) == Verdict(lost=2, doubled=3)
    assert str(judge(counts)) == "2 lost, 3 doubled"
    with pytest.raises(ValueError, match="1999-12-31"):
        judge({"1999-12-31 00:00:00": 1})
