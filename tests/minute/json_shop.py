"""The JSON lines of a shop, and its own record of what it wrote.

The checker knows what to expect from the lines that were made; nothing of Tally is imported.
"""

import json
import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

LEVELS = {"ERROR": 4, "FATAL": 1, "WARN": 2, "INFO": 6}
COUNTED = {"ERROR", "FATAL"}
SERVICES = ("cart", "Cart", "payment", "träger", "日本 😀", 'quoted "name"', None)
PODS = 5

Key = tuple[str, str, str]
"""Minute, service and level."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A line as it was written, and what the shop meant by it."""

    value: bytes
    partition: int
    key: bytes
    meant: Key | None
    """None for a line that is no JSON document."""


def write_lines(seed: int, count: int, partitions: int) -> list[Line]:
    """So many lines; one seed writes the same ones again."""
    rng = random.Random(seed)
    return [_line(rng, rng.randrange(partitions)) for _ in range(count)]


def expected(lines: Iterable[Line]) -> Counter[Key]:
    """Lines at a counted level by minute, service and level."""
    return Counter(line.meant for line in lines if line.meant and line.meant[2] in COUNTED)


def differences(
    lines: Iterable[Line], counts: Mapping[Key, int], dead_letters: Iterable[bytes]
) -> list[str]:
    """What the result has that the shop did not write, or the other way round.

    Args:
        lines: All that was written.
        counts: The result.
        dead_letters: The bytes of each dead letter.
    """
    lines = list(lines)
    wanted = expected(lines)
    broken = Counter(line.value for line in lines if line.meant is None)
    found = Counter(dead_letters)
    return [
        f"{key}: wrote {wanted[key]}, counted {counts.get(key, 0)}"
        for key in sorted(wanted.keys() | counts.keys())
        if wanted[key] != counts.get(key, 0)
    ] + [
        f"{value!r}: wrote {broken[value]}, kept {found[value]}"
        for value in sorted(broken.keys() | found.keys())
        if broken[value] != found[value]
    ]


def _line(rng: random.Random, partition: int) -> Line:
    minute = f"2017-07-30 14:{rng.randrange(60):02d}"
    (level,) = rng.choices(list(LEVELS), weights=list(LEVELS.values()))
    service = rng.choice(SERVICES)
    text = _document(rng, f"{minute}:{rng.randrange(60):02d}", service, level)
    meant: Key | None = (f"{minute}:00", service or "", level)
    if rng.random() < 0.03:
        text, meant = rng.choice([text[:-1], text + text, f"[{text}]", "no JSON: " + text]), None
    key = f"pod-{rng.randrange(PODS)}".encode()
    return Line(value=text.encode(), partition=partition, key=key, meant=meant)


def _document(rng: random.Random, time: str, service: str | None, level: str) -> str:
    """Members in any order, decoys of the same names in other places, some keys twice."""
    named = {"version": rng.choice([1.10, "1.10", 7]), "name": service, "tags": ["ERROR", {}]}
    if service is None:
        del named["name"]
    logged: dict[str, object] = {"logger": "shop.Cart", "level": level, "time": "1999-01-01"}
    members: list[tuple[str, object]] = [
        ("service", _shuffled(rng, named)),
        ("log", _shuffled(rng, logged)),
        ("@timestamp", time.replace(" ", "T") + rng.choice(["Z", ".123Z", "+02:00", ""])),
        ("message", rng.choice(["no such item", '{"log":{"level":"ERROR"}}', "a\nb", ""])),
        ("http", {"request": {"service": {"name": "decoy"}, "log.level": "ERROR"}}),
        ("took", rng.choice([0.25, 12, None, True])),
    ]
    rng.shuffle(members)
    if rng.random() < 0.2:
        members.insert(0, ("service", rng.choice([{"name": "earlier"}, "text", None])))
        members.insert(0, ("log", {"level": "ERROR"}))
    ascii_only, indent = rng.random() < 0.5, rng.choice([None, None, 2])
    return _joined(members, ascii_only=ascii_only, indent=indent)


def _shuffled(rng: random.Random, members: dict[str, object]) -> dict[str, object]:
    return dict(rng.sample(list(members.items()), len(members)))


def _joined(members: Iterable[tuple[str, object]], *, ascii_only: bool, indent: int | None) -> str:
    pairs = (
        f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=ascii_only, indent=indent)}"
        for key, value in members
    )
    return "{" + ("," if indent is None else ",\n").join(pairs) + "}"
