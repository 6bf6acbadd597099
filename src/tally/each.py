"""Doing something for several pipelines: an error of one keeps no other from its turn."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tally import errors
from tally.errors import TallyError
from tally.views import ErrorView

T = TypeVar("T")


@dataclass(kw_only=True, slots=True)
class Each(Generic[T]):
    """What was done for each pipeline, and what went wrong."""

    done: list[T] = field(default_factory=list)
    """The outcome of each pipeline that had one, in order of their names."""
    errors: dict[str, TallyError] = field(default_factory=dict)
    """The error of each other pipeline, by name."""
    down: TallyError | None = None
    """The error of a server that is down or refused the login: also that of all later pipelines."""

    @property
    def views(self) -> dict[str, ErrorView]:
        """The errors as views."""
        return {name: ErrorView.of(error) for name, error in self.errors.items()}

    @property
    def exit_code(self) -> int:
        """The largest exit code of the errors; 0 without one."""
        return max((error.exit_code for error in self.errors.values()), default=errors.EXIT_OK)


def is_down(error: TallyError) -> bool:
    """Whether a server does not answer at all; not just for one topic or one statement.

    A refused login counts: the server answers nothing to this user.
    """
    if isinstance(error, errors.AccessDeniedError):
        return bool(error.credentials)
    return type(error) in {errors.KafkaUnavailableError, errors.MySQLUnavailableError}


def for_each(names: Sequence[str], work: Callable[[str], T]) -> Each[T]:
    """Call a function for each pipeline; an error of one keeps none from its turn.

    A server that does not answer ends it: it answers none of the others either.
    """
    each: Each[T] = Each()
    for name in names:
        try:
            if each.down is not None:
                raise each.down
            each.done.append(work(name))
        except TallyError as error:
            each.errors[name] = error
            each.down = error if is_down(error) else None
    return each
