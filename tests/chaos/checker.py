"""Holds the result against what was produced. Knows nothing of offsets, batches or the ledger."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from tests.chaos.production import Produced, owner_of

SHOWN = 20


@dataclass(slots=True)
class Findings:
    """Lines that the result has lost, counted twice or made up; empty when it is right."""

    lost: list[str] = field(default_factory=list)
    """Lines that were produced and are not counted."""
    duplicated: list[str] = field(default_factory=list)
    """Lines that are counted more than once."""
    invented: list[str] = field(default_factory=list)
    """Counts of lines that nobody has produced."""

    @property
    def total(self) -> int:
        """How many."""
        return len(self.lost) + len(self.duplicated) + len(self.invented)

    def __str__(self) -> str:
        if not self.total:
            return "nothing lost, nothing duplicated, nothing invented"
        return "; ".join(
            f"{len(lines)} {name}: {', '.join(lines[:SHOWN])}"
            for name in ("lost", "duplicated", "invented")
            if (lines := getattr(self, name))
        )


def check(
    produced: Produced, result: Mapping[datetime, int], dead_letters: Iterable[bytes]
) -> Findings:
    """Compare the whole result, line by line where lines have a minute of their own.

    Args:
        produced: What was written and acknowledged.
        result: The result table.
        dead_letters: The bytes of each dead letter.
    """
    findings = Findings()
    expected = Counter(produced.minutes())
    expected.update(produced.shared)
    _compare(findings, {_name(m): n for m, n in expected.items()}, _named(result))
    letters = Counter(produced.malformed())
    _compare(findings, {repr(v): n for v, n in letters.items()}, _counted(dead_letters))
    return findings


def check_so_far(result: Mapping[datetime, int]) -> Findings:
    """What must hold whenever somebody looks: no minute of a line's own counts two."""
    return Findings(
        duplicated=[_name(minute) for minute, n in result.items() if n > 1 and owner_of(minute)]
    )


def _compare(findings: Findings, expected: Mapping[str, int], found: Mapping[str, int]) -> None:
    for name in expected.keys() | found.keys():
        wanted, got = expected.get(name, 0), found.get(name, 0)
        if got > wanted:
            kind = findings.duplicated if wanted else findings.invented
            kind.extend([name] * (got - wanted))
        elif got < wanted:
            findings.lost.extend([name] * (wanted - got))


def _named(result: Mapping[datetime, int]) -> dict[str, int]:
    return {_name(minute): n for minute, n in result.items()}


def _counted(values: Iterable[bytes]) -> dict[str, int]:
    return {repr(value): n for value, n in Counter(values).items()}


def _name(minute: datetime) -> str:
    owner = owner_of(minute)
    if owner is None:
        return f"minute {minute:%Y-%m-%d %H:%M}"
    return f"partition {owner[0]} number {owner[1]}"
