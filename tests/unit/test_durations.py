"""The durations of a run, and the order of the next one."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.durations import FIRST, Durations


def ordered(file: Path, *ids: str) -> list[str]:
    """Tests in the order in which they would run."""
    items: list[Any] = [SimpleNamespace(nodeid=nodeid) for nodeid in ids]
    Durations(file).pytest_collection_modifyitems(items)
    return [item.nodeid for item in items]


def test_the_longest_file_comes_first_and_stays_together(tmp_path: Path) -> None:
    """By what was recorded; without a record a list says what is long."""
    file = tmp_path / "durations.json"
    fresh = [f"{FIRST[0]}::1", f"{FIRST[1]}::1", "quick.py::1"]
    for content in ("", "{ cut o"):
        file.write_text(content)
        assert ordered(file, *fresh[::-1]) == fresh
    seconds = {"a.py::1": 1.0, "b.py::1": 2.0, "b.py::2": 2.5, "c.py::1": 3.0}
    file.write_text(json.dumps(seconds))
    assert ordered(file, "a.py::1", "a.py::new", *list(seconds)[1:]) == [
        *("b.py::1", "b.py::2", "c.py::1", "a.py::1", "a.py::new")
    ]
