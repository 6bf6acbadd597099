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

from tally.app.batches import BatchesView, BatchView
from tally.app.configuration import ConfigView
from tally.app.counts import CountsListView, CountsView
from tally.app.dead_letters import DeadLettersView
from tally.app.doctor import DoctorView
from tally.app.format_trial import TrialView
from tally.app.overview import PipelinesView
from tally.app.status import StatusView
from tally.audit.audit import AuditsView, AuditView
from tally.cli.replay_running import ReplayDocument
from tally.counting.outcomes import RunsView, RunView
from tally.counting.plan import PlanView
from tally.losses.losses import LossesView
from tally.losses.topics import AdoptionView
from tally.maintenance.abandon import AbandonedView
from tally.maintenance.prune import PruneView
from tally.replay.run import ReplaysView
from tally.views import ErrorView, parts_of

HEADER: Final = """\
# JSON

Written by `python -m tally.cli.json_reference` from the views in `src/tally/app/`; do not edit.

What each command writes with `--json`. Keys are only ever added, and a key is in every document
unless its text says otherwise; `null` is a value that is not known or does not exist. Times are UTC
in ISO 8601; `log_time` is the wall clock of the log lines and has no zone.

A command that fails before it has a result writes `{"error": …}` with an [ErrorView](#errorview).
"""

DOCUMENTS: Final[Mapping[str, type]] = {
    "abandon": AbandonedView,
    "audit": AuditView,
    "batches": BatchesView,
    "config show": ConfigView,
    "counts": CountsView,
    "dead-letters": DeadLettersView,
    "doctor": DoctorView,
    "format try": TrialView,
    "losses accept": LossesView,
    "losses list": LossesView,
    "pipelines": PipelinesView,
    "plan": PlanView,
    "prune": PruneView,
    "replay": ReplayDocument,
    "replays": ReplaysView,
    "run": RunView,
    "show": BatchView,
    "status": StatusView,
    "topics adopt": AdoptionView,
}
"""The view that each command writes."""

OF_SEVERAL: Final[Mapping[str, type]] = {
    "audit": AuditsView,
    "counts": CountsListView,
    "run": RunsView,
    "status": PipelinesView,
}
"""The view that a command writes instead when it shows several pipelines."""

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
    for command, view in DOCUMENTS.items():
        several = OF_SEVERAL.get(command)
        more = f", or {_link(several)} of several pipelines" if several else ""
        lines.append(f"| `tally {command}` | {_link(view)}{more} |")
    for view in _reachable([*DOCUMENTS.values(), *OF_SEVERAL.values(), ErrorView]):
        lines += ["", *_section(view)]
    return "\n".join(lines) + "\n"


def _section(view: type) -> Iterator[str]:
    yield f"## {view.__name__}\n"
    yield f"{_first_sentence(view)}\n"
    yield "| key | value | |"
    yield "|---|---|---|"
    yield from _rows(view)


def _rows(view: Any, *, or_null: bool = False) -> Iterator[str]:
    """A line for each key; what is written among the view's own keys has its own lines."""
    hints, texts, parts = get_type_hints(view), _texts(view), parts_of(view)
    for field in fields(view):
        if field.name in parts:
            yield from _rows(parts[field.name], or_null=hints[field.name] is not parts[field.name])
        else:
            kind, text = _kind(hints[field.name]), _as_markdown(texts[field.name])
            kind += " or null" if or_null and "null" not in kind else ""
            yield f"| `{field.name}` | {kind} | {text} |"


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
        parts = parts_of(view)
        for name, hint in get_type_hints(view).items():
            if name in parts:
                continue
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
                    ast.Expr(value=ast.Constant(value=str(said))),
                ):
                    texts[name] = said
    return texts


if __name__ == "__main__":
    sys.stdout.write(render())
