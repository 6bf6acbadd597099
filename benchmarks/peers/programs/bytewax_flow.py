"""Bytewax: a dataflow that reads the topic to its end and counts by minute."""

from collections.abc import Iterator
from typing import Any

import bytewax.operators as op
from bytewax.connectors.kafka import KafkaSource
from bytewax.dataflow import Dataflow
from bytewax.testing import TestingSink, run_main

from benchmarks.peers.program import ERROR, LEVEL, MINUTE, Asked, run


def count(asked: Asked) -> dict[str, int]:
    """ERROR lines by minute."""
    found: list[tuple[str, int]] = []
    source = KafkaSource(
        brokers=[asked["servers"]],
        topics=[asked["topic"]],
        tail=False,
        batch_size=10_000,
        add_config={"fetch.queue.backoff.ms": "5", "check.crcs": "false"},
    )
    flow = Dataflow("count")
    records = op.input("read", flow, source)
    minutes = op.flat_map_batch("errors", records, _minutes)
    op.output("found", op.count_final("count", minutes, str), TestingSink(found))
    run_main(flow)
    return dict(found)


def _minutes(records: list[Any]) -> Iterator[str]:
    for record in records:
        value = record.value
        if value[LEVEL] == ERROR:
            yield value[MINUTE].decode()


if __name__ == "__main__":
    run(count)
