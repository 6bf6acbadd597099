"""``docs/json.md``, from the views of the use cases.

``python -m docs.json_page > docs/json.md`` writes it; a test holds the two equal.
"""

import ast
import inspect
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import StrEnum
from itertools import pairwise
from types import NoneType, UnionType
from typing import Any, Final, NamedTuple, Union, get_args, get_origin, get_type_hints

from docs.cli_page import walk

from tally.cli.command import Command
from tally.views import ErrorView, parts_of

HEADER: Final = """\
# JSON

Written by `python -m docs.json_page` from the views of the use cases; do not edit.

What each command writes with `--json`. Keys are only ever added, and a key is in every document
unless its text says otherwise. `?` is a type that may be `null`: the value is not known, as Kafka
did not answer, or it does not exist, or not yet. Times are UTC in ISO 8601; `log_time` is the wall
clock of the log lines and has no zone. A key without a text means what its name says.

A command that fails before it has a result writes `{"error": …}` with an [ErrorView](#errorview).
"""

COMMON_IN: Final = 3
"""A key with one meaning in this many views is described once, above them."""

DOCUMENTS: Final[Mapping[str, Command]] = {
    " ".join(path[1:]): command
    for path, command in sorted(walk().items())
    if isinstance(command, Command) and command.document is not None
}
"""The commands that write a document, by name."""

_PLAIN: Final[Mapping[Any, str]] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    datetime: "time",
}

_WHEN_NULL: Final = re.compile(
    r"; (?:else null|null (?:when|until|for|before|without) [^;.]*)(?=\.)"
)
"""The part of a text that says what the page says once, of every value that may be null."""
_EMPTY_WORDS: Final = frozenset(
    {"the", "its", "it", "s", "who", "when", "was", "of", "to", "belongs", "which"}
)


def render() -> str:
    """The whole page."""
    lines = [HEADER]
    written: list[type] = [ErrorView]
    for name, command in DOCUMENTS.items():
        kinds = [kind for kind in (command.document, command.several) if kind]
        lines.append(f"- `tally {name}`: {', of several pipelines '.join(map(_link, kinds))}")
        written += kinds
    views = _reachable(written)
    own = {view: _own_keys(view) for view in views}
    used = Counter(key for keys in own.values() for key in keys)
    common = {key for key, times in used.items() if times >= COMMON_IN}
    lines += ["", "## Values\n", *_enumerations(views)]
    lines += ["", "## Common keys\n", *sorted(map(_described, common))]
    for view, keys in own.items():
        lines += ["", *_section(view, keys, common)]
    return "\n".join(lines) + "\n"


class _Key(NamedTuple):
    """A key of a view, as the page describes it."""

    name: str
    kind: str
    text: str


def _own_keys(view: type) -> list[_Key]:
    """The keys of a view that it does not have from another one."""
    base = _base(view)
    inherited = {field.name for field in fields(base)} if base else set()
    inherited |= parts_of(view).keys()
    hints, texts = get_type_hints(view), _texts(view)
    return [
        _Key(field.name, _kind(hints[field.name]), _text(field.name, texts[field.name]))
        for field in fields(view)
        if field.name not in inherited
    ]


def _base(view: type) -> type | None:
    return next((base for base in view.__mro__[1:] if is_dataclass(base)), None)


def _described(key: _Key) -> str:
    return f"- `{key.name}` ({key.kind})" + (f": {key.text}" if key.text else "")


def _section(view: type, keys: Sequence[_Key], common: Collection[_Key]) -> Iterator[str]:
    yield f"## {view.__name__}\n"
    yield f"{_first_sentence(view)}\n"
    if base := _base(view):
        yield f"- all keys of {_link(base)}"
    for name, part in parts_of(view).items():
        if base and name in parts_of(base):
            continue
        may_lack = "" if get_type_hints(view)[name] is part else ", each null where there is none"
        yield f"- all keys of {_link(part)}{may_lack}"
    if shared := [f"`{key.name}`" for key in keys if key in common]:
        yield f"- {', '.join(shared)}"
    yield from (_described(key) for key in keys if key not in common)


def _enumerations(views: Sequence[type]) -> Iterator[str]:
    hints = [hint for view in views for hint in get_type_hints(view).values()]
    kinds = {kind.__name__: kind for hint in hints for kind in _classes(hint)}
    for name, kind in sorted(kinds.items()):
        if issubclass(kind, StrEnum):
            yield f"- {name}: {', '.join(f'`{value}`' for value in kind)}"


def _text(name: str, docstring: str) -> str:
    """A docstring in one line, with JSON's `null` for None; empty when the name says as much."""
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", " ".join(docstring.split())).replace("``", "`")
    words = set(re.findall(r"\w+", text.lower())) - _EMPTY_WORDS
    if words <= set(re.findall(r"[^\W_]+", name)):
        return ""
    return _WHEN_NULL.sub("", re.sub(r"\bNone\b", "null", text))


def _reachable(views: list[type]) -> list[type]:
    """These views and all views that they contain, by name."""
    found: dict[str, type] = {}
    todo = list(views)
    while todo:
        view = todo.pop()
        if view.__name__ in found:
            if found[view.__name__] is not view:
                raise AssertionError(f"two views are called {view.__name__}")
            continue
        found[view.__name__] = view
        todo += [*filter(None, [_base(view)]), *parts_of(view).values()]
        for name, hint in get_type_hints(view).items():
            if name in parts_of(view):
                continue
            todo += [kind for kind in _classes(hint) if is_dataclass(kind)]
    return [found[name] for name in sorted(found)]


def _classes(hint: Any) -> Iterator[type]:
    """The classes in an annotation."""
    if isinstance(hint, type):
        yield hint
    for argument in get_args(hint):
        yield from _classes(argument)


def _kind(hint: Any) -> str:
    """A type, as the page names it."""
    if hint in _PLAIN:
        return _PLAIN[hint]
    if is_dataclass(hint) and isinstance(hint, type):
        return _link(hint)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return f"[{hint.__name__}](#values)"
    return _generic(get_origin(hint), get_args(hint))


def _generic(origin: Any, arguments: Sequence[Any]) -> str:
    if origin in {Union, UnionType}:
        kinds = [_kind(argument) for argument in arguments if argument is not NoneType]
        return " or ".join(kinds) + ("?" if NoneType in arguments else "")
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
                    ast.Expr(value=ast.Constant(value=str(said))),
                ):
                    texts[name] = said
    return texts


if __name__ == "__main__":
    sys.stdout.write(render())
