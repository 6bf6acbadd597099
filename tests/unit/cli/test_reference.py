"""The reference in docs/ and the commands themselves are one."""

from pathlib import Path

from tally.cli import json_reference
from tally.cli.reference import render
from tally.cli.tree import walk

DOCS = Path(__file__).parents[3] / "docs"
PAGE = DOCS / "cli.md"


def test_the_reference_is_what_the_commands_say() -> None:
    """When this fails: python -m tally.cli.reference > docs/cli.md."""
    assert PAGE.read_text(encoding="utf-8") == render()


def test_the_reference_has_every_command_and_the_exit_codes() -> None:
    """No command is left out of the page."""
    page = render()
    for path in walk():
        assert f"### {' '.join(path)}\n" in page
    meaning = "another attempt was first: it owns the batch, or the batch has ended"
    assert f"| 5 | {meaning}; nothing was changed |" in page


def test_the_json_reference_is_what_the_views_are() -> None:
    """When this fails: python -m tally.cli.json_reference > docs/json.md."""
    assert (DOCS / "json.md").read_text(encoding="utf-8") == json_reference.render()


def test_the_json_reference_has_every_command_that_writes_json() -> None:
    """A command with --json has a published document."""
    writes = {
        " ".join(path[1:])
        for path, command in walk().items()
        if any(parameter.name == "json" for parameter in command.params)
    }
    local = {"up", "down", "demo", "stack"}
    assert writes - local == json_reference.DOCUMENTS.keys()
