"""The tree of errors: what each class promises, and its drawing."""

import re

import pytest

from tally import errors
from tally.errors import OutcomeUnknownError, RetryableError, TallyError
from tally.mysql.errors import CommitUnansweredError


@pytest.mark.parametrize("kind", [OutcomeUnknownError, CommitUnansweredError])
def test_an_unknown_outcome_does_not_promise_that_nothing_was_changed(
    kind: type[TallyError],
) -> None:
    """It is no RetryableError, which promises that; the exit code is the same."""
    assert not issubclass(kind, RetryableError)
    assert (kind.code, kind.exit_code) == ("outcome-unknown", 3)


def test_the_drawn_tree_is_the_tree() -> None:
    """Each class is below its base, in the order of the module, with its exit code."""
    assert errors.__doc__ is not None
    drawn = re.findall(r"^    ([│├└─ ]*)(\w+Error)(?: +exit (\d))?", errors.__doc__, re.MULTILINE)
    exits = {c.__name__: str(c.exit_code) for c in TallyError.__subclasses__()}
    assert [(len(lines) // 4, name, code) for lines, name, code in drawn] == [
        (depth, kind.__name__, exits[kind.__name__] if depth == 1 else "")
        for depth, kind in walk(TallyError, 0)
    ]


def walk(kind: type[TallyError], depth: int) -> list[tuple[int, type[TallyError]]]:
    """A class and all of the module's below it, with their depth."""
    below = [child for child in kind.__subclasses__() if child.__module__ == errors.__name__]
    return [(depth, kind), *(found for child in below for found in walk(child, depth + 1))]
