"""How fast a backlog is counted, compared with a bare read and with other tools, in one run.

Usage: ``.tally/venv/bin/python -m benchmarks.backlog [--lines 10000000] [--rounds 3] [--peers]``

Writes lines of 71 bytes over four partitions to a topic of its own on a stack of its own, whose
counts per minute it knows, and reads all of them in each of these ways, in turns:

- ConsumerPerformance: Kafka's own tool, records discarded, its start excluded,
- a bare read: Spark reads every record and discards it, in the session that Tally counts in,
- Tally: plan, claim, count, check and commit of one batch into MySQL,
- a Spark batch with the defaults of Spark and Kafka, Structured Streaming, and a Python loop over
  confluent-kafka in one process and in two: all count the same into the same MySQL,
- with ``--peers`` also the tools of :mod:`benchmarks.peers.isolated`, each in an environment of its
  own, the start of its program excluded.

What each of them has counted must be what was written, or it ends with exit code 1.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from pyspark.sql import SparkSession

from benchmarks.contest import Rounds, Timed, take_turns, timed
from benchmarks.page import Table, command, say
from benchmarks.peers import consumer_performance, python_consumer, spark_programs
from benchmarks.peers.isolated import ISOLATED, Isolated
from benchmarks.peers.store import Store
from benchmarks.picture import BACKLOG
from benchmarks.servers import BYTES, PARTITIONS, Bench, Written, new_topic, serving, write_lines
from tally.spark.session import reader_options, spark_session

LIMIT = "ConsumerPerformance, records thrown away"
BARE = "a bare Spark read, records thrown away"
TALLY = "**Tally**: plan, claim, count, check, commit"
STREAMING = "Spark Structured Streaming, `availableNow`"
DEFAULTS = "a Spark batch with default options"
PYTHON_2 = "Python over confluent-kafka, two processes"
PYTHON_1 = "Python over confluent-kafka, one process"


def measure(lines: int = 10_000_000, rounds: int = 3, *, peers: bool = False) -> Iterator[Table]:
    """Run the comparison.

    Args:
        lines: To be counted.
        rounds: That are measured.
        peers: Whether the tools that are installed for it take part, once each.

    Raises:
        RuntimeError: Somebody has counted other than what was written.
    """
    isolated = ISOLATED if peers else ()
    for peer in isolated:
        peer.install()
    pipelines, topic = [f"round{number}" for number in range(rounds + 1)], new_topic("backlog")
    keys = f'topics = ["{topic}"]\nmax_records_per_partition = {lines}'
    with serving(dict.fromkeys(pipelines, keys), {topic: PARTITIONS}) as servers:
        written = write_lines(servers, lines)
        with (
            spark_session(servers.settings.spark, "backlog") as spark,
            _contestants(servers, spark, written, iter(pipelines)) as contestants,
        ):
            seconds = take_turns(contestants, rounds)
            # Each begins as a new process: it has nothing to be warmed, and takes minutes.
            for title, run in _programs(servers, written, isolated).items():
                seconds[title] = run()
                say(f"  once: {title} {seconds[title]:.2f} s")
            yield _table(seconds, lines)


def _table(seconds: Mapping[str, float], lines: int) -> Table:
    limit, bare = seconds[LIMIT], seconds[BARE]
    return Table(
        name=BACKLOG,
        headers=[
            f"{lines:,} lines of {BYTES} bytes",
            "seconds",
            "million lines/s",
            "rate of ConsumerPerformance's",
            "time of the bare read's",
        ],
        rows=[
            [
                name,
                f"{took:.2f}",
                f"{lines / took / 1e6:.2f}",
                f"{limit / took:.2f}",
                f"{took / bare:.2f}",
            ]
            for name, took in sorted(seconds.items(), key=lambda item: item[1])
        ],
    )


@contextmanager
def _contestants(
    servers: Bench, spark: SparkSession, written: Written, pipelines: Iterator[str]
) -> Iterator[dict[str, Timed]]:
    kafka, topic = servers.settings.kafka.bootstrap_servers, servers.topic
    options = reader_options(servers.settings.kafka, servers.settings.pipeline("round0"))

    def peer(name: str, count: Callable[[Callable[[Mapping[str, int]], None]], None]) -> Timed:
        store = Store(servers.login(), name)
        work = timed(lambda: count(partial(store.commit, ends=written.ends)))
        return _checked(store, work, written)

    with python_consumer.processes(2) as two:
        yield {
            LIMIT: lambda: consumer_performance.fetch(
                servers.stack.kafka_jars_dir, kafka, topic, written.lines
            ),
            BARE: timed(lambda: spark_programs.read_bare(spark, topic, len(written.ends), options)),
            TALLY: Rounds(servers=servers, spark=spark, written=written, pipelines=pipelines),
            STREAMING: peer(
                "streaming",
                lambda commit: spark_programs.stream_available(spark, topic, options, commit),
            ),
            DEFAULTS: peer(
                "defaults",
                lambda commit: spark_programs.count_by_defaults(spark, topic, kafka, commit),
            ),
            PYTHON_2: peer("python2", lambda commit: commit(two(kafka, topic, written.ranges))),
            PYTHON_1: peer(
                "python1",
                lambda commit: commit(python_consumer.count(kafka, topic, written.ranges)),
            ),
        }


def _checked(store: Store, counting: Timed, written: Written) -> Timed:
    """Counts into empty tables; what is there at the end must be what was written."""

    def run() -> float:
        store.create()
        took = counting()
        written.check(store)
        return took

    return run


def _programs(servers: Bench, written: Written, isolated: Sequence[Isolated]) -> dict[str, Timed]:
    """The peers that are programs of their own, by title."""
    asked = {
        "servers": servers.settings.kafka.bootstrap_servers,
        "topic": servers.topic,
        "ranges": written.ranges,
        "login": servers.login(),
    }
    return {
        peer.title: _checked(Store(servers.login(), peer.name), partial(peer.count, asked), written)
        for peer in isolated
    }


if __name__ == "__main__":
    sys.exit(command(measure))
