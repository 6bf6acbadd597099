"""Takes a guard out of Tally's code in memory, so that a test can be seen to miss it."""

import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tally.errors import TallyError

RED = (AssertionError, pytest.fail.Exception, TallyError)
"""What a test ends with that has noticed something."""


@contextmanager
def mutated(guarded: Callable[..., Any], old: str, new: str) -> Iterator[None]:
    """Within the block a function, or a method, runs with one place of its source replaced.

    Args:
        guarded: Where the guard stands.
        old: The guard; it must stand there exactly once.
        new: What stands there instead.
    """
    source = textwrap.dedent(inspect.getsource(guarded))
    assert source.count(old) == 1, f"{guarded.__qualname__} has {old!r} {source.count(old)} times"
    module = sys.modules[guarded.__module__]
    scope: dict[str, Any] = {}
    code = f"from __future__ import annotations\n{source.replace(old, new)}"
    exec(compile(code, f"<{guarded.__qualname__}, mutated>", "exec"), vars(module), scope)  # noqa: S102 - our own source
    with pytest.MonkeyPatch.context() as patch:
        for owner in _owners(guarded):
            patch.setattr(owner, guarded.__name__, scope[guarded.__name__])
        yield


def _owners(guarded: Callable[..., Any]) -> list[Any]:
    """The class of a method, or every module of Tally's that knows the function by its name."""
    name = guarded.__name__
    if "." in guarded.__qualname__:
        return [vars(sys.modules[guarded.__module__])[guarded.__qualname__.split(".")[0]]]
    return [
        module
        for key, module in list(sys.modules.items())
        if key.split(".")[0] == "tally" and vars(module).get(name) is guarded
    ]
