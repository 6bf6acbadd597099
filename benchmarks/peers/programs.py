"""Peers as programs of their own, each in an environment that has its packages.

Usage: ``python -m benchmarks.peers.programs NAME``. Counts what its input asks for, commits it, and
prints the seconds that both took. The start of the program is not part of them.
"""

# ruff: noqa: PLC0415 - each environment has the packages of one peer

import json
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.peers.store import Store

Asked = Mapping[str, Any]
"""``servers``, ``topic``, ``ranges`` as partition, first offset and end, ``login``, ``peer``, and
the paths of ``jars``."""
Count = Callable[[Asked], Mapping[str, int]]
"""ERROR lines by minute."""

LEVEL = slice(20, 26)
ERROR = b"ERROR "
MINUTE = slice(0, 16)


def main(name: str) -> None:
    """Run a program."""
    count = PROGRAMS[name]()
    asked = json.load(sys.stdin)
    began = time.perf_counter()
    counts = count(asked)
    ends = {number: end for number, _, end in asked["ranges"]}
    Store(asked["login"], asked["peer"]).commit(counts, ends)
    print(json.dumps({"seconds": time.perf_counter() - began}))


def python() -> Count:
    """A loop over confluent-kafka."""
    from benchmarks.peers import python_consumer

    return lambda asked: python_consumer.count(asked["servers"], asked["topic"], asked["ranges"])


def quix() -> Count:
    """Quix Streams: a dataframe over the topic, whose lines are counted in the program's memory."""
    from quixstreams import Application

    def count(asked: Asked) -> Counter[str]:
        counts: Counter[str] = Counter()

        def see(value: bytes) -> None:
            if value[LEVEL] == ERROR:
                counts[value[MINUTE].decode()] += 1

        app = Application(
            broker_address=asked["servers"],
            consumer_group=str(uuid.uuid4()),
            auto_offset_reset="earliest",
            consumer_extra_config={"fetch.queue.backoff.ms": 5, "check.crcs": False},
            loglevel="ERROR",
        )
        app.dataframe(app.topic(asked["topic"], value_deserializer="bytes")).update(see)
        app.run(count=sum(end - begin for _, begin, end in asked["ranges"]), collect=False)
        return counts

    return count


def bytewax() -> Count:
    """Bytewax: a dataflow that reads the topic to its end and counts by minute."""
    import bytewax.operators as op
    from bytewax.connectors.kafka import KafkaSource
    from bytewax.dataflow import Dataflow
    from bytewax.testing import TestingSink, run_main

    def minutes_of(records: list[Any]) -> Iterator[str]:
        for record in records:
            if record.value[LEVEL] == ERROR:
                yield record.value[MINUTE].decode()

    def count(asked: Asked) -> dict[str, int]:
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
        minutes = op.flat_map_batch("errors", records, minutes_of)
        op.output("found", op.count_final("count", minutes, str), TestingSink(found))
        run_main(flow)
        return dict(found)

    return count


def pathway() -> Count:
    """Pathway: a static table of the topic, grouped by minute."""
    import pathway as pw

    def count(asked: Asked) -> dict[str, int]:
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
        found = minutes.groupby(pw.this.minute).reduce(pw.this.minute, lines=pw.reducers.count())
        pw.io.subscribe(found, on_change=see)
        pw.run(monitoring_level=pw.MonitoringLevel.NONE)
        return counts

    return count


FLINK_TABLE = """
create table log (line string) with (
  'connector' = 'kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = '{servers}',
  'properties.check.crcs' = 'false', 'properties.max.poll.records' = '10000',
  'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset',
  'format' = 'raw'
)
"""
FLINK_QUERY = """
select substring(line, 1, 16) as log_minute, count(*) as found from log
where substring(line, 21, 6) = 'ERROR ' group by substring(line, 1, 16)
"""


def flink() -> Count:
    """PyFlink: a bounded query over the topic, grouped by minute."""
    from pyflink.table import EnvironmentSettings, TableEnvironment

    environment = TableEnvironment.create(EnvironmentSettings.in_batch_mode())  # starts its JVM

    def count(asked: Asked) -> dict[str, int]:
        settings = environment.get_config()
        settings.set("parallelism.default", "2")
        settings.set("pipeline.jars", ";".join(Path(jar).as_uri() for jar in asked["jars"]))
        environment.execute_sql(FLINK_TABLE.format(**asked))
        with environment.execute_sql(FLINK_QUERY).collect() as rows:
            return {row[0]: row[1] for row in rows}

    return count


PROGRAMS: Mapping[str, Callable[[], Count]] = {
    "python": python,
    "quix": quix,
    "bytewax": bytewax,
    "pathway": pathway,
    "flink": flink,
}

if __name__ == "__main__":
    main(sys.argv[1])
