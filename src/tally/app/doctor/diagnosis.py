"""The answer of one check."""

from dataclasses import dataclass
from enum import StrEnum

from tally.errors import TallyError, UnansweredError


class Health(StrEnum):
    """A failed check keeps Tally from counting; a warning does not, but somebody should look."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True, kw_only=True, slots=True)
class Diagnosis:
    """What one check found."""

    check: str
    """Stable name, ``<area>.<what>``."""
    health: Health
    """How it is."""
    detail: str
    """What was found, in one sentence."""
    next_step: str | None = None
    """What to do; null when all is well."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DoctorView:
    """What all checks found."""

    healthy: bool
    """Whether none has failed."""
    checks: tuple[Diagnosis, ...]
    """In the order in which they were made."""

    def count(self, health: Health) -> int:
        """How many checks ended so."""
        return sum(check.health is health for check in self.checks)


def ok(check: str, detail: str) -> Diagnosis:
    """All is well."""
    return Diagnosis(check=check, health=Health.OK, detail=detail)


def warn(check: str, detail: str, next_step: str) -> Diagnosis:
    """It works, but somebody should look."""
    return Diagnosis(check=check, health=Health.WARN, detail=detail, next_step=next_step)


def fail(check: str, detail: str, next_step: str) -> Diagnosis:
    """Tally cannot count like this."""
    return Diagnosis(check=check, health=Health.FAIL, detail=detail, next_step=next_step)


def skip(check: str, detail: str) -> Diagnosis:
    """Not asked, and why."""
    return Diagnosis(check=check, health=Health.SKIP, detail=detail)


def next_step_of(error: TallyError, unexplained: str) -> str:
    """What an error asks for; errors send people to the doctor, who needs another answer.

    Args:
        error: What a server said, or that it said nothing.
        unexplained: What to do when nothing is known but that it did not answer.
    """
    is_unexplained = isinstance(error, UnansweredError) and error.is_unexplained
    return unexplained if is_unexplained else error.next_step
