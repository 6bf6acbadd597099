"""The result of one check."""

from dataclasses import dataclass
from pathlib import Path

from tally.app.configuration import name_sources
from tally.app.health import Health
from tally.config.settings import Settings
from tally.errors import TallyError, UnansweredError


@dataclass(frozen=True, kw_only=True, slots=True)
class Diagnosis:
    """What one check found."""

    check: str
    """Stable name, ``<area>.<what>``."""
    health: Health
    """The outcome."""
    detail: str
    """What was found, in one sentence."""
    next_step: str | None = None
    """What to do; null when there is nothing to do."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DoctorView:
    """What all checks found."""

    healthy: bool
    """Whether no check failed."""
    checks: tuple[Diagnosis, ...]
    """The checks, in the order in which they were made."""

    def count(self, health: Health) -> int:
        """How many checks have this outcome."""
        return sum(check.health is health for check in self.checks)


def ok(check: str, detail: str) -> Diagnosis:
    """The check passed."""
    return Diagnosis(check=check, health=Health.OK, detail=detail)


def warn(check: str, detail: str, next_step: str) -> Diagnosis:
    """Tally works, but an operator should look at it."""
    return Diagnosis(check=check, health=Health.WARN, detail=detail, next_step=next_step)


def fail(check: str, detail: str, next_step: str) -> Diagnosis:
    """Tally cannot count like this."""
    return Diagnosis(check=check, health=Health.FAIL, detail=detail, next_step=next_step)


def skip(check: str, detail: str) -> Diagnosis:
    """The check was not made, and why."""
    return Diagnosis(check=check, health=Health.SKIP, detail=detail)


def next_step_of(error: TallyError, unexplained: str, settings: Settings, config: Path) -> str:
    """The next step for an error.

    The next step of an unexplained timeout is to run the doctor, which is no help here.

    Args:
        error: The error of a server, or of a server that did not answer.
        unexplained: What to do when all that is known is that the server did not answer.
        settings: The configuration.
        config: Its file; for a refused login it is told where user and password come from.
    """
    name_sources(settings, config, error)
    is_unexplained = isinstance(error, UnansweredError) and error.is_unexplained
    return unexplained if is_unexplained else error.next_step
