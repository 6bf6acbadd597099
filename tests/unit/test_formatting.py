"""Numbers and times in messages."""

import pytest

from tally.formatting import plural, time_span


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (1, "batch", "1 batch"),
        (2000, "batch", "2,000 batches"),
        (0, "record", "0 records"),
        (1, "record", "1 record"),
    ],
)
def test_a_number_has_its_noun(count: int, noun: str, text: str) -> None:
    """One is singular; thousands are separated."""
    assert plural(count, noun) == text


def test_a_span_of_one_minute_is_that_minute() -> None:
    """A span of one minute is printed as that minute."""
    assert time_span("14:05", "14:05") == "14:05"
    assert time_span("14:05", "14:09") == "14:05 to 14:09"
