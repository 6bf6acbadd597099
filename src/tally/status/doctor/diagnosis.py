"""The result of one check."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from tally.errors import TallyError, UnansweredError
from tally.status.health import Health

T = TypeVar("T")


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


def judged(
    check: str,
    wrong: str,
    next_step: str,
    right: str,
    diagnose: Callable[[str, str, str], Diagnosis] = fail,
) -> Diagnosis:
    """The check passed with what is right, or not where something is wrong."""
    return diagnose(check, wrong, next_step) if wrong else ok(check, right)


def refused(check: str, error: TallyError) -> Diagnosis:
    """The check failed with an error."""
    return fail(check, error.what, error.next_step)


class FailedError(Exception):
    """A check failed, and those after it cannot be made.

    Args:
        diagnosis: What it found.
    """

    def __init__(self, diagnosis: Diagnosis) -> None:
        super().__init__(diagnosis.detail)
        self.diagnosis = diagnosis


def asked(
    check: str,
    work: Callable[[], T],
    unexplained: str | None = None,
    explain: Callable[[TallyError], None] = lambda _: None,
) -> T:
    """What a server answers.

    The next step of an unexplained timeout is to run the doctor, which is no help here.

    Args:
        check: The check that fails when it does not answer.
        work: Asks it.
        unexplained: What to do when all that is known is that it did not answer.
        explain: Called with the error; it may give it a better next step.

    Raises:
        FailedError: It did not answer, or refused.
    """
    try:
        return work()
    except TallyError as error:
        explain(error)
        is_unexplained = isinstance(error, UnansweredError) and error.is_unexplained
        next_step = unexplained if unexplained and is_unexplained else error.next_step
        raise FailedError(fail(check, error.what, next_step)) from error


def until_failed(checks: Iterable[Diagnosis]) -> Iterator[Diagnosis]:
    """Diagnoses as they are made, up to one without which those after it cannot be made."""
    try:
        yield from checks
    except FailedError as failed:
        yield failed.diagnosis
