"""Which records of a topic a format is tried on, and which levels are then to be configured."""

from pyspark.sql import Row
from tests.unit.values import span

from tally.app.format_keys import levels_to_configure
from tally.lines.format import CATALOGUE, LineFormat
from tally.spark.trial import newest_within


def test_the_newest_records_that_fit_are_tried() -> None:
    """Of each partition about as many; none behind a record that was left out."""
    for sizes, bytes_max, expected in (
        ({0: [1, 1, 1], 1: [1, 1, 1]}, 9, {0: 0, 1: 0}),
        ({0: [1, 1, 1], 1: [1, 1, 1]}, 4, {0: 1, 1: 1}),
        ({0: [1, 1, 1], 1: [9, 9, 2]}, 5, {0: 0, 1: 2}),
        ({0: [1, 9, 1], 1: [9]}, 8, {0: 2}),
        ({number: [3, 3] for number in range(256)}, 7, {0: 1, 1: 1}),
        ({0: [9], 1: [2]}, 7, {1: 0}),
        ({0: [9], 1: [9]}, 7, {}),
    ):
        rows, ranges = [], []
        for number, of in sizes.items():
            ranges.append(span(0, len(of), number))
            rows += [Row(partition=number, offset=at, size=size) for at, size in enumerate(of)]
        found = newest_within(rows, ranges, bytes_max)
        assert {r.partition.partition: r.from_offset for r in found} == expected
        assert all(r.until_offset == len(sizes[r.partition.partition]) for r in found)


OF_TOMCAT_AND_ANDROID = {"tomcat": ["SEVERE"], "android": ["E"]}


def test_the_levels_to_configure_are_never_all_of_a_format_that_has_errors() -> None:
    """Also of a sample without any: the format knows its own; others have ERROR, the default."""
    for name, line_format in CATALOGUE.items():
        levels = line_format.levels or tuple(line_format.level_names.values())
        for seen in ([], levels[-1:], levels):
            found = levels_to_configure(line_format, seen)
            if not line_format.has_level:
                assert found == [], name
                continue
            assert line_format.printed_levels(found or ["ERROR"])
            if name in OF_TOMCAT_AND_ANDROID:
                assert found == OF_TOMCAT_AND_ANDROID[name]
            elif found is not None:
                assert [level[:3].casefold() for level in found] == ["err"], name
    # Of levels of which none is known to be an error all are shown: none would count any line.
    pattern, levels = "(?<level>(?:ALPHA|BETA)) x", ("ALPHA", "BETA")
    line_format = LineFormat(name="custom", pattern=pattern, example="BETA x", levels=levels)
    assert levels_to_configure(line_format, ["BETA", "ALPHA"]) == ["BETA", "ALPHA"]
