"""``docs/json.md``, from the views of the use cases.

``python -m tally.cli.json_reference > docs/json.md`` writes it; a test holds the two equal.
"""

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import StrEnum
from itertools import pairwise
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from tally.cli.command import Command
from tally.cli.tree import walk
from tally.views import ErrorView, parts_of

HEADER: Final = """\
# JSON

Written by `python -m tally.cli.json_reference` from the views in `src/tally/app/`; do not edit.

What each command writes with `--json`. Keys are only ever added, and a key is in every document
unless its text says otherwise; `null` is a value that is not known or does not exist. Times are UTC
in ISO 8601; `log_time` is the wall clock of the log lines and has no zone.

A command that fails before it has a result writes `{"error": …}` with an [ErrorView](#errorview).
"""

DOCUMENTS: Final[Mapping[str, Command]] = {
    " ".join(path[1:]): command
    for path, command in sorted(walk().items())
    if isinstance(command, Command) and command.document is not None
}
"""The commands that write a document, by name."""

_PLAIN: Final[Mapping[Any, str]] = {
    str: "text",
    int: "integer",
    float: "number",
    bool: "true or false",
    datetime: "time",
    NoneType: "null",
}


def render() -> str:
    """The whole page."""
    lines = [HEADER, "| command | document |", "|---|---|"]
    views: list[type] = [ErrorView]
    for name, command in DOCUMENTS.items():
        written = [view for view in (command.document, command.several) if view]
        of = ", or ".join(map(_link, written)) + " of several pipelines" * (len(written) - 1)
        lines.append(f"| `tally {name}` | {of} |")
        views += written
    for view in _reachable(views):
        lines += ["", *_section(view)]
    return "\n".join(lines) + "\n"


def _section(view: type) -> Iterator[str]:
    yield f"## {view.__name__}\n"
    yield f"{_first_sentence(view)}\n"
    yield "| key | value | |"
    yield "|---|---|---|"
    for key, kind, text in _keys(view):
        yield f"| `{key}` | {kind} | {_as_markdown(text)} |"


def _keys(view: type, *, or_null: bool = False) -> Iterator[tuple[str, str, str]]:
    """The keys of a view's document: kind of value, and text."""
    hints, texts, parts = get_type_hints(view), _texts(view), parts_of(view)
    for field in fields(view):
        name = field.name
        if name in parts:
            yield from _keys(parts[name], or_null=hints[name] is not parts[name])
        else:
            kind = _kind(hints[name])
            yield name, kind + " or null" * (or_null and "null" not in kind), texts[name]


def _as_markdown(text: str) -> str:
    """A docstring in one line, with JSON's `null` for None."""
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", " ".join(text.split()))
    return re.sub(r"\bNone\b", "null", text).replace("|", "\\|")


def _reachable(views: list[type]) -> list[type]:
    """These views and all views that they contain, by name."""
    found: dict[str, type] = {}
    todo = list(views)
    while todo:
        view = todo.pop()
        if found.setdefault(view.__name__, view) is not view:
            raise AssertionError(f"two views are called {view.__name__}")
        for key, hint in get_type_hints(view).items():
            if key not in parts_of(view):
                todo += [inner for inner in _inner(hint) if inner.__name__ not in found]
    return [found[name] for name in sorted(found)]


def _inner(hint: Any) -> Iterator[type]:
    if is_dataclass(hint) and isinstance(hint, type):
        yield hint
    for argument in get_args(hint):
        yield from _inner(argument)


def _kind(hint: Any) -> str:
    """A type, as the page names it."""
    if hint in _PLAIN:
        return _PLAIN[hint]
    if is_dataclass(hint) and isinstance(hint, type):
        return _link(hint)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return ", ".join(f"`{value}`" for value in hint)
    return _generic(get_origin(hint), get_args(hint))


def _generic(origin: Any, arguments: Sequence[Any]) -> str:
    if origin in {Union, UnionType}:
        return " or ".join(map(_kind, arguments))
    if origin is tuple:
        return f"list of {_kind(arguments[0])}"
    if inspect.isclass(origin) and issubclass(origin, Mapping):
        return f"object of {_kind(arguments[1])}"
    raise AssertionError(f"no name for {origin}")


def _link(view: type) -> str:
    return f"[{view.__name__}](#{view.__name__.lower()})"


def _first_sentence(view: type) -> str:
    return (inspect.getdoc(view) or "").split("\n\n", maxsplit=1)[0].replace("\n", " ")


def _texts(view: type) -> dict[str, str]:
    """The docstring below each field, with the fields of its base classes."""
    texts: dict[str, str] = {}
    for base in reversed(view.__mro__[:-1]):
        body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        statements = body.body if isinstance(body, ast.ClassDef) else []
        for field, text in pairwise(statements):
            match field, text:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(docstring))),
                ):
                    texts[name] = docstring
    return texts


if __name__ == "__main__":
    sys.stdout.write(render())
