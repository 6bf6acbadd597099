"""Quix Streams: a dataframe over the topic, whose lines are counted in the program's memory."""

import uuid
from collections import Counter

from quixstreams import Application

from benchmarks.peers.program import ERROR, LEVEL, MINUTE, Asked, lines, run


def count(asked: Asked) -> Counter[str]:
    """ERROR lines by minute."""
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
    app.run(count=lines(asked), collect=False)
    return counts


if __name__ == "__main__":
    run(count)
