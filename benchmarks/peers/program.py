"""What a peer's own program does besides counting: it is told what to count, and commits it."""

import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.peers import store

Asked = Mapping[str, Any]
"""``servers``, ``topic``, ``ranges`` as partition, first offset and end, ``login``, ``peer``, and
the paths of ``jars``."""

LEVEL = slice(20, 26)
ERROR = b"ERROR "
MINUTE = slice(0, 16)


def lines(asked: Asked) -> int:
    """How many lines are to be read."""
    return sum(end - begin for _, begin, end in asked["ranges"])


def run(count: Callable[[Asked], Mapping[str, int]]) -> None:
    """Count what stdin asks for, commit it, and print the seconds that both took.

    The start of the program is not part of them.
    """
    asked = json.load(sys.stdin)
    began = time.perf_counter()
    counts = count(asked)
    ends = {number: end for number, _, end in asked["ranges"]}
    store.commit(asked["login"], asked["peer"], counts, ends)
    print(json.dumps({"seconds": time.perf_counter() - began}))
