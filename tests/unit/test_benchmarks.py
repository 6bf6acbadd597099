"""How a benchmark is run from the command line."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.page import Table, command, get, put


def measure(
    lines: int = 10, names: tuple[str, ...] = ("batch",), *, peers: bool = False
) -> Iterator[Table]:
    """Show what was asked for."""
    yield Table(name="asked", headers=["lines", "names"], rows=[[f"{lines:,}", " ".join(names)]])
    if peers:
        raise RuntimeError("a benchmark that fails")


def test_each_parameter_is_an_option(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the type of its default; a table is printed before a benchmark fails."""
    monkeypatch.setattr("sys.argv", ["benchmark"])
    assert command(measure) == 0
    assert "| 10 | batch |" in capsys.readouterr().out
    options = ["--lines", "2000", "--names", "rows", "files", "--peers"]
    monkeypatch.setattr("sys.argv", ["benchmark", *options])
    with pytest.raises(RuntimeError, match="that fails"):
        command(measure)
    assert "| 2,000 | rows files |" in capsys.readouterr().out


def test_a_table_replaces_the_one_of_its_name(tmp_path: Path) -> None:
    """A page without its marks is an error."""
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- benchmark asked -->\nold\n<!-- end -->\nb\n", encoding="utf-8")
    (table,) = measure()
    put(table, page)
    assert get("asked", page) == table
    assert page.read_text(encoding="utf-8").startswith("a\n<!-- benchmark asked -->\n| lines |")
    with pytest.raises(LookupError):
        get("another", page)
