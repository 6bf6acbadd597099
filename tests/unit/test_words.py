"""Numbers in sentences."""

import pytest

from tally.words import plural


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
    """One alone is singular; thousands are separated."""
    assert plural(count, noun) == text
