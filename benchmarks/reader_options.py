"""What each option of Spark's Kafka reader gains, in one run.

Usage: ``.tally/venv/bin/python -m benchmarks.reader_options [--lines 4000000] [--rounds 5]``

Counts a small topic (1,000 lines) and a long one, from plan to commit, with Tally's defaults and
with one of them changed at a time, in turns, and prints medians as multiples of the defaults'.
"""

import sys
from collections.abc import Iterator

from benchmarks.contest import Rounds, take_turns
from benchmarks.page import Table, command
from benchmarks.servers import PARTITIONS, new_topic, serving, write_lines
from tally.spark.session import spark_session

SMALL = 1_000
DEFAULTS = "Tally's defaults"
OPTIONS = (
    ("kafka.fetch.max.wait.ms", "500"),
    ("kafka.fetch.max.wait.ms", "100"),
    ("kafka.max.poll.records", "500"),
    ("kafka.max.partition.fetch.bytes", "1048576"),
    ("kafka.check.crcs", "true"),
)
"""What is changed; all but the 100 ms are Kafka's own defaults."""
VARIANTS = {
    DEFAULTS: "",
    **{f"`{key}` = {value}": f'reader = {{ "{key}" = "{value}" }}' for key, value in OPTIONS},
}
"""Keys of the pipelines, as TOML."""


def measure(lines: int = 4_000_000, rounds: int = 5) -> Iterator[Table]:
    """Run the comparison.

    Raises:
        RuntimeError: Somebody has counted other than what was written.
    """
    topics = {size: new_topic(f"reader-options-{size}") for size in (SMALL, lines)}
    pipelines = {
        f"reader_{size}_{variant}_{number}": f'topics = ["{topics[size]}"]\n'
        f"max_records_per_partition = {size}\n{keys}"
        for size in topics
        for variant, keys in enumerate(VARIANTS.values())
        for number in range(rounds + 1)
    }
    found = []
    with (
        serving(pipelines, dict.fromkeys(topics.values(), PARTITIONS)) as servers,
        spark_session(servers.settings.spark, "reader-options") as spark,
    ):
        for size, topic in topics.items():
            written = write_lines(servers, size, topic=topic)
            contestants = {
                name: Rounds(
                    servers=servers,
                    spark=spark,
                    written=written,
                    pipelines=iter([f"reader_{size}_{variant}_{n}" for n in range(rounds + 1)]),
                )
                for variant, name in enumerate(VARIANTS)
            }
            found.append(take_turns(contestants, rounds))
    yield Table(
        headers=[
            "option",
            *(text for size in topics for text in (f"{size:,} lines, s", "of the defaults'")),
        ],
        rows=[
            [
                name,
                *(
                    cell
                    for s in found
                    for cell in (f"{s[name]:.2f}", f"{s[name] / s[DEFAULTS]:.2f}")
                ),
            ]
            for name in VARIANTS
        ],
    )


if __name__ == "__main__":
    sys.exit(command(measure))
