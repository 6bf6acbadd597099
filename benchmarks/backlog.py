"""How fast a backlog is counted, compared with a bare read and with other tools, in one run.

Usage: ``.tally/venv/bin/python -m benchmarks.backlog [--lines 10000000] [--rounds 5] [--all]``

Writes lines of 71 bytes over four partitions to a topic of its own on a stack of its own, whose
counts per minute it knows, and reads all of them in each of these ways, in turns:

- ConsumerPerformance: Kafka's own tool, records discarded, its start excluded,
- a bare read: Spark reads every record and discards it, in the session that Tally counts in,
- Tally: plan, claim, count, check and commit of one batch into MySQL,
- a Spark batch with the defaults of Spark and Kafka, Structured Streaming, and a Python loop over
  confluent-kafka in one process and in two: all count the same into the same MySQL,
- with ``--all`` also the tools of :mod:`benchmarks.peers.isolated`, each in an environment of its
  own, the start of its program excluded.

What each of them has counted must be what was written, or it ends with exit code 1.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from pyspark.sql import SparkSession

from benchmarks.contest import Timed, take_turns, timed
from benchmarks.lines import BYTES, Written, write_lines
from benchmarks.page import Table
from benchmarks.peers import consumer_performance, python_consumer, spark_programs, store
from benchmarks.peers.isolated import ISOLATED, Isolated
from benchmarks.picture import BACKLOG
from benchmarks.rounds import Rounds
from benchmarks.servers import PARTITIONS, Bench, bench, login, plan, say
from tally.context import Context
from tally.counting.batch import run_batch
from tally.spark.session import reader_options, spark_session

LIMIT = "ConsumerPerformance, records thrown away"
BARE = "a bare Spark read, records thrown away"
TALLY = "**Tally**: plan, claim, count, check, commit"
PEERS = {
    "streaming": "Spark Structured Streaming, `availableNow`",
    "defaults": "a Spark batch with default options",
    "python2": "Python over confluent-kafka, two processes",
    "python1": "Python over confluent-kafka, one process",
}


def main() -> int:
    """Run the comparison and print its table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lines", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--all", action="store_true", help="the tools that are installed for it")
    asked = parser.parse_args()
    table = measure(asked.lines, asked.rounds, ISOLATED if asked.all else ())
    say("\n".join(table.lines()))
    return 0


def measure(lines: int, rounds: int, isolated: Sequence[Isolated] = ()) -> Table:
    """Run the comparison.

    Args:
        lines: To be counted.
        rounds: That are measured.
        isolated: Further peers; those that are not installed are installed.

    Raises:
        RuntimeError: Somebody has counted other than what was written.
    """
    pipelines = [f"round{number}" for number in range(rounds + 1)]
    for peer in isolated:
        peer.install()
    with bench(pipelines, f"max_records_per_partition = {lines}") as servers:
        written = write_lines(servers, lines, PARTITIONS)
        with (
            spark_session(servers.settings.spark, "backlog") as spark,
            _contestants(servers, spark, written) as contestants,
        ):
            everybody = {**contestants, **_programs(servers, written, isolated)}
            return _table(take_turns(everybody, rounds), lines)


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
    servers: Bench, spark: SparkSession, written: Written
) -> Iterator[dict[str, Timed]]:
    kafka = servers.settings.kafka.bootstrap_servers
    options = reader_options(servers.settings.kafka, servers.settings.pipeline("round0"))
    peers = _Peers(login=login(servers), written=written)
    with python_consumer.processes(2) as two:
        yield {
            LIMIT: partial(
                consumer_performance.fetch,
                servers.stack.kafka_jars_dir,
                kafka,
                servers.topic,
                written.lines,
            ),
            BARE: timed(
                lambda: spark_programs.read_bare(spark, servers.topic, written.partitions, options)
            ),
            TALLY: Rounds(
                servers=servers, spark=spark, written=written, name="round", count=_count_once
            ),
            PEERS["streaming"]: peers.timed(
                "streaming",
                lambda commit: spark_programs.stream_available(
                    spark, servers.topic, options, commit
                ),
            ),
            PEERS["defaults"]: peers.timed(
                "defaults",
                lambda commit: spark_programs.count_by_defaults(
                    spark, servers.topic, kafka, commit
                ),
            ),
            PEERS["python2"]: peers.timed(
                "python2", lambda commit: commit(two(kafka, servers.topic, written.ranges))
            ),
            PEERS["python1"]: peers.timed(
                "python1",
                lambda commit: commit(python_consumer.count(kafka, servers.topic, written.ranges)),
            ),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class _Peers:
    """Peers that count into tables of their own, which are empty before each round."""

    login: store.Login
    written: Written

    def timed(
        self, peer: str, count: Callable[[Callable[[Mapping[str, int]], None]], None]
    ) -> Timed:
        def commit(counts: Mapping[str, int]) -> None:
            store.commit(self.login, peer, counts, self.written.ends)

        return self.checked(peer, timed(lambda: count(commit)))

    def checked(self, peer: str, counting: Timed) -> Timed:
        """Into empty tables, and what is there at the end must be what was written."""

        def run() -> float:
            store.prepare(self.login, peer)
            took = counting()
            self.written.check(peer, store.result(self.login, peer))
            return took

        return run


def _programs(servers: Bench, written: Written, isolated: Sequence[Isolated]) -> dict[str, Timed]:
    """The peers that are programs of their own, by title."""
    peers = _Peers(login=login(servers), written=written)
    asked = {
        "servers": servers.settings.kafka.bootstrap_servers,
        "topic": servers.topic,
        "ranges": written.ranges,
        "login": peers.login,
    }
    return {
        peer.title: peers.checked(peer.name, partial(peer.count, {**asked, "peer": peer.name}))
        for peer in isolated
    }


def _count_once(ctx: Context, pipeline: str) -> None:
    run_batch(ctx, plan(ctx, pipeline))


if __name__ == "__main__":
    sys.exit(main())
