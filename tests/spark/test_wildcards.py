"""Values of a filter with wildcards, against a matcher of the tests' own."""

import random

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tally.spark.wildcards import matches_value
from tests.spark.outcomes import SEED

pytestmark = pytest.mark.spark

CHARS = ["a", "b", "%", "_", "\\", ".", "Q", "E", "\n", "é", "\U0001f600", " "]


def expected(value: str, text: str) -> bool:
    """By trying every split: ``*`` takes nothing, or a character and tries again."""
    reached = {0}
    for char in value:
        if char == "*":
            reached = set(range(min(reached, default=len(text) + 1), len(text) + 1))
        else:
            reached = {i + 1 for i in reached if i < len(text) and text[i] == char}
    return len(text) in reached


def test_each_value_takes_exactly_the_texts_that_it_describes(spark: SparkSession) -> None:
    """Characters with a meaning in LIKE or in a pattern mean themselves; any number of ``*``."""
    rng = random.Random(SEED)
    values = {"", "*", "**", "a", "*a", "a*", "*a*", "a*b", "a*b*", "*a*b", "*a*b*", "a*a", "**a**"}
    while len(values) < 150:
        values.add("".join(rng.choices([*CHARS, *"****ab"], k=rng.randrange(1, 7))))
    texts = {"", "a", "b", "ab", "aab", "ba"}
    while len(texts) < 150:
        made = rng.choice(sorted(values)).replace("*", "".join(rng.choices(CHARS, k=2)))
        texts.add(made + rng.choice(["", "", rng.choice(CHARS)]))
    asked = sorted(values)
    frame = spark.createDataFrame([(text,) for text in sorted(texts)], "text string")
    rows = frame.select("text", *(matches_value(F.col("text"), v) for v in asked)).collect()
    found = {
        (text, v): said for text, *all_said in rows for v, said in zip(asked, all_said, strict=True)
    }
    assert found == {(text, v): expected(v, text) for text, v in found}
    assert 200 < sum(found.values()) < len(found) - 200
