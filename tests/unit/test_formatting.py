"""Numbers and times in messages."""

import tomllib
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tally.formatting import inline_toml, plural, time_span

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=12,
)


def test_what_a_person_reads_is_as_it_is_written() -> None:
    """One is singular; thousands are separated; a span of one minute is that minute."""
    assert [plural(count, "batch") for count in (1, 2000)] == ["1 batch", "2,000 batches"]
    assert [plural(count, "record") for count in (0, 1)] == ["0 records", "1 record"]
    assert time_span("14:05", "14:05") == "14:05"
    assert time_span("14:05", "14:09") == "14:05 to 14:09"
    # TOML has simple keys without quotes, patterns without doubled backslashes, any letters.
    value = {"pattern": r"(?<level>\w+) ü", "spark.ui.port": ["1", 2, True]}
    told = r"""{ pattern = '(?<level>\w+) ü', "spark.ui.port" = ["1", 2, true] }"""
    assert inline_toml(value) == told


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(VALUES)
def test_a_value_as_toml_is_one_printable_line_that_says_the_same(value: Any) -> None:
    """Any text can be pasted: controls, quotes, backslashes and what is beyond 16 bits."""
    line = inline_toml(value)
    assert line.isprintable()
    assert tomllib.loads(f"value = {line}") == {"value": value}
