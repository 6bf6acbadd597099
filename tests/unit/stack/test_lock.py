"""Locks between processes."""

from pathlib import Path

import pytest

from tally.errors import StackError
from tally_local.stack.lock import held_alone


def test_what_runs_already_is_said_at_once(tmp_path: Path) -> None:
    """With what to do; afterwards it may run again."""
    lock = tmp_path / "home" / "demo.lock"
    with (
        held_alone(lock, "a demonstration"),
        pytest.raises(StackError, match="a demonstration runs already") as caught,
        held_alone(lock, "a demonstration"),
    ):
        pass
    assert "Ctrl-C" in caught.value.next_step
    with held_alone(lock, "a demonstration"):
        pass
