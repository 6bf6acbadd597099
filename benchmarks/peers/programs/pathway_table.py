"""Pathway: a static table of the topic, grouped by minute."""

import uuid
from typing import Any

import pathway as pw

from benchmarks.peers.program import Asked, run


def count(asked: Asked) -> dict[str, int]:
    """ERROR lines by minute."""
    counts: dict[str, int] = {}

    def see(key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:  # noqa: ARG001
        if is_addition:
            counts[row["minute"]] = row["lines"]

    settings = {
        "bootstrap.servers": asked["servers"],
        "group.id": str(uuid.uuid4()),
        "auto.offset.reset": "earliest",
        "check.crcs": "false",
    }
    table = pw.io.kafka.read(settings, topic=asked["topic"], format="plaintext", mode="static")
    errors = table.filter(pw.this.data.str.slice(20, 26) == "ERROR ")
    minutes = errors.select(minute=pw.this.data.str.slice(0, 16))
    by_minute = minutes.groupby(pw.this.minute).reduce(pw.this.minute, lines=pw.reducers.count())
    pw.io.subscribe(by_minute, on_change=see)
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    return counts


if __name__ == "__main__":
    run(count)
