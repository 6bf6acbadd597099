"""The tree of errors: what each class promises, and its drawing."""

import pickle
import re
from collections import Counter
from collections.abc import Iterator

from tests.unit.sources import ERRORS, error_tree
from tests.unit.values import span

from tally import errors
from tally.errors import OutcomeUnknownError, RecordsMissingError, RetryableError, TallyError
from tally.mysql.errors import CommitUnansweredError


def test_the_drawn_tree_is_the_tree_and_each_error_has_its_code() -> None:
    """Each class is below its base, in the order of the module, with its exit code."""
    assert errors.__doc__ is not None
    drawn = re.findall(r"^    ([│├└─ ]*)(\w+Error)(?: +exit (\d))?", errors.__doc__, re.MULTILINE)
    exits = {c.__name__: str(c.exit_code) for c in TallyError.__subclasses__()}
    assert [(len(lines) // 4, name, code) for lines, name, code in drawn] == [
        (depth, kind.__name__, exits[kind.__name__] if depth == 1 else "")
        for depth, kind in error_tree()
    ]
    # The runbook has one entry for each code; none is inherited, none is used twice.
    codes = Counter(vars(error).get("code", f"{error.__name__} has none") for error in ERRORS)
    assert [code for code, times in codes.items() if times > 1] == []
    assert [code for code in codes if not re.fullmatch(r"[a-z]+(-[a-z]+)*", code)] == []
    documented = {errors.EXIT_USAGE, errors.EXIT_RETRYABLE, errors.EXIT_OPERATOR}
    assert {error.exit_code for error in ERRORS} == documented | {errors.EXIT_FENCED}
    # An unknown outcome is no RetryableError, which promises that nothing was changed.
    for kind in (OutcomeUnknownError, CommitUnansweredError):
        assert not issubclass(kind, RetryableError)
        assert (kind.code, kind.exit_code) == ("outcome-unknown", 3)


def test_every_error_survives_the_way_from_a_spark_task() -> None:
    """An error of a task is pickled: the driver gets the same class, sentences and ranges."""
    r = span(2, 5)
    for kind in every_kind():
        error = kind("what")
        error.next_step = "do this"
        copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
        assert (type(copy), str(copy)) == (kind, str(error))
    missing = RecordsMissingError("what")
    missing.ranges = (r,)
    missing = pickle.loads(pickle.dumps(missing))  # noqa: S301
    assert missing.ranges == (r,)


def every_kind(kind: type[TallyError] = TallyError) -> Iterator[type[TallyError]]:
    for below in kind.__subclasses__():
        if "code" in vars(below):
            yield below
        yield from every_kind(below)
