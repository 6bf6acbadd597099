"""Compares the result with what was produced, without offsets, batches or the ledger."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from tests.chaos.production import Produced, owner_of

SHOWN = 20

Key = TypeVar("Key", datetime, bytes)


@dataclass(slots=True)
class Findings:
    """Lines that the result has lost, counted twice or made up; empty when it is right."""

    lost: list[str] = field(default_factory=list)
    duplicated: list[str] = field(default_factory=list)
    invented: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """How many of each kind, and which; empty when all is right."""
        return "; ".join(
            f"{len(lines)} {name}: {', '.join(lines[:SHOWN])}"
            for name in ("lost", "duplicated", "invented")
            if (lines := getattr(self, name))
        )


def check(
    produced: Produced, result: Mapping[datetime, int], dead_letters: Iterable[bytes]
) -> Findings:
    """Compare the whole result, line by line where lines have a minute of their own."""
    findings = Findings()
    expected = Counter(produced.minutes())
    expected.update(produced.shared)
    _compare(findings, expected, result, _name)
    _compare(findings, Counter(produced.malformed()), Counter(dead_letters), repr)
    return findings


def check_so_far(result: Mapping[datetime, int], shared: Mapping[datetime, int]) -> list[str]:
    """The rows that count more lines than are written once they were read, at any time."""
    most = {minute: 1 if owner_of(minute) else shared.get(minute, 0) for minute in result}
    return [_name(minute) for minute, n in result.items() if n > most[minute]]


def _compare(
    findings: Findings,
    expected: Mapping[Key, int],
    found: Mapping[Key, int],
    name: Callable[[Key], str],
) -> None:
    for key in expected.keys() | found.keys():
        wanted, got = expected.get(key, 0), found.get(key, 0)
        if got > wanted:
            kind = findings.duplicated if wanted else findings.invented
            kind.extend([name(key)] * (got - wanted))
        elif got < wanted:
            findings.lost.extend([name(key)] * (wanted - got))


def _name(minute: datetime) -> str:
    owner = owner_of(minute)
    if owner is None:
        return f"minute {minute:%Y-%m-%d %H:%M:%S}"
    return f"partition {owner[0]} number {owner[1]}"
