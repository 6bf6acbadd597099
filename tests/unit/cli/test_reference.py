"""The references in docs/ and the commands themselves are one."""

from tests.unit.sources import DOCS, text

from tally.cli import json_reference
from tally.cli.reference import render
from tally.cli.tree import walk


def test_the_reference_is_what_the_commands_say() -> None:
    """When this fails: python -m tally.cli.reference > docs/cli.md."""
    page = render()
    assert text(DOCS / "cli.md") == page
    assert [path for path in walk() if f"### {' '.join(path)}\n" not in page] == []
    meaning = "another attempt was first: it owns the batch, or the batch has ended"
    assert f"| 5 | {meaning}; nothing was changed |" in page


def test_the_json_reference_is_what_the_views_are() -> None:
    """When this fails: python -m tally.cli.json_reference > docs/json.md; it has every --json."""
    assert text(DOCS / "json.md") == json_reference.render()
    writes = {
        " ".join(path[1:])
        for path, command in walk().items()
        if any(parameter.name == "json" for parameter in command.params)
    }
    local = {"up", "down", "demo", "stack"}
    assert writes - local == json_reference.DOCUMENTS.keys()
