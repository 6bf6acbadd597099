r"""The line format that a configuration value means, or why it means none; and the ready-made ones.

Lines of ``key=value`` in any order (``logfmt``) become a pattern with a group for each field. A
value stands bare, up to the next blank, or in double quotes with backslashes for escapes, which are
not resolved. Each group is looked for from the start of the line on, over whole pairs, so that no
key is found inside of a value. The first pair of a key counts. A line that does not begin with a
pair is none.
"""

import importlib.resources
import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

from tally.errors import ConfigError
from tally.formatting import close_to
from tally.lines.format import Accepted, JsonPath, LineFormat, LineOptions, parse_path, time_names
from tally.lines.pattern import CLOCK, DATE, TIME, parse_pattern
from tally.lines.time_format import parse_time_format

CUSTOM: Final = "custom"
"""The name of a format that is no ready-made one."""

SKIP_BYTES_MAX: Final = 1024
OPTIONS: Final = frozenset(field.name for field in fields(LineOptions))
_KINDS: Final = frozenset({"name", "pattern", "json", "logfmt"})
_KEYS: Final = _KINDS | {"time_format"} | OPTIONS
_TABLES: Final = (
    "a table with pattern or json, and time_format where the lines have a time; or with logfmt, or "
    "with the name of a ready-made one. It may have the options skip_bytes, default_level, accept"
)
_LACKS: Final = {
    "pattern": f" lacks the named group (?<{TIME}>…), or (?<{DATE}>…) and (?<{CLOCK}>…)",
    "json": f": must be a table of fields, {TIME} among them, or {DATE} and {CLOCK}",
    "logfmt": f" lacks {TIME}, or {DATE} and {CLOCK}",
}

PAIRS_MAX: Final = 200
"""So many pairs of a line of ``key=value`` are passed over: a bound to what it can cost."""
_QUOTED: Final = r'(?:[^"\\]|\\.)*+'
_BARE: Final = r'(?:[^\s"]\S*+)?+'
_PAIR: Final = rf'[^\s="]++(?:=(?>"{_QUOTED}"|{_BARE}))?+\s*+'
_BEGINS: Final = "(?=[!#-<>-~]++=)"
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*")
_KEY: Final = re.compile(r"[!#-<>-~]+")

_SEVERITIES: Final = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug")
_PRIORITIES: Final = {str(number): _SEVERITIES[number % 8] for number in range(192)}


def parse_line_format(value: object, *, key: str) -> LineFormat:
    """The line format that a configuration value means.

    Args:
        value: A name in :data:`CATALOGUE`, or a table ``{pattern = …, time_format = …}`` or
            ``{json = {time = …, …}, time_format = …}``, with ``logfmt`` in place of ``json``, or
            ``{name = …}``, with options or not, and without time format where the lines have no
            time; whatever the configuration file holds.
        key: Where the value stands, for errors: ``pipelines.error_log.line_format``.

    Raises:
        ConfigError: The name is unknown, or the table is not a valid line format. The
            error names the key, the value and what is allowed.
    """
    if isinstance(value, str):
        return _named(value, key)
    unknown = [str(k) for k in value if k not in _KEYS] if isinstance(value, Mapping) else []
    if unknown:
        raise ConfigError(
            f"{key}.{unknown[0]}: is no known key{close_to(unknown[0], _KEYS)}; a line format is "
            f"{_TABLES}"
        )
    if not isinstance(value, Mapping) or len(_KINDS & set(value)) != 1:
        raise ConfigError(
            f"{key} = {value!r}: a line format is a name ({', '.join(CATALOGUE)}) or {_TABLES}"
        )
    try:
        return replace(_from_table(value, key), options=parse_options(value))
    except ValueError as error:
        raise ConfigError(f"{key}.{error}") from error


def line_format_of(value: str | Mapping[str, Any]) -> LineFormat:
    """The line format of a value that was checked, which is parsed once: records ask for it."""
    return _parsed(json.dumps(value))


@lru_cache(maxsize=256)
def _parsed(text: str) -> LineFormat:
    return parse_line_format(json.loads(text), key="line_format")


def parse_options(table: Mapping[Any, object]) -> LineOptions:
    """The options in a line format's table; its other keys are ignored.

    Raises:
        ValueError: One is not valid. The message begins with its name.
    """
    skip, level = table.get("skip_bytes", 0), table.get("default_level", "")
    if type(skip) is not int or not 0 <= skip <= SKIP_BYTES_MAX:
        raise ValueError(f"skip_bytes = {skip!r}: must be a number from 0 to {SKIP_BYTES_MAX:,}")
    if not isinstance(level, str) or any(map(str.isspace, level)):
        raise ValueError(f"default_level = {level!r}: a level is one word")
    accept, known = table.get("accept", ()), list(Accepted)
    if not isinstance(accept, list | tuple) or any(of not in known for of in accept):
        raise ValueError(f"accept = {accept!r}: must be a list of some of {', '.join(known)}")
    return LineOptions(
        skip_bytes=skip,
        default_level=level,
        accept=tuple(sorted(map(Accepted, set(accept)))),
    )


def _from_table(table: Mapping[Any, Any], key: str) -> LineFormat:
    """The format without its options.

    Raises:
        ConfigError: As :func:`parse_line_format`.
        ValueError: The same; the message goes on behind the key.
    """
    (kind,) = _KINDS & set(table)
    has_format = "time_format" in table
    if kind == "name":
        if has_format:
            raise ValueError("time_format: a ready-made format has its own: leave it out")
        return _named(table["name"], f"{key}.name")
    time_format = _checked(table, "time_format", parse_time_format) if has_format else ""
    if kind == "pattern":
        content: dict[str, Any] = {"pattern": _checked(table, "pattern", parse_pattern)}
        names = parse_pattern(table["pattern"]).groups
    else:
        content, names = _of_fields(kind, table[kind], time_format), tuple(table[kind])
    if has_format and not time_names(names):
        raise ValueError(f"{kind} = {table[kind]!r}{_LACKS[kind]}")
    return LineFormat(name=CUSTOM, time_format=time_format, **content)


def _of_fields(kind: str, fields: Any, time_format: str) -> dict[str, Any]:
    """The pattern or the JSON fields of a table of fields, each with one place."""
    if not isinstance(fields, Mapping) or not fields:
        raise ValueError(
            f"{kind} = {fields!r}: must be a table of fields and their keys, {TIME} among them "
            "where the lines have one"
        )
    try:
        return _fields(kind, {name: [place] for name, place in fields.items()}, time_format)
    except ValueError as error:
        raise ValueError(f"{kind}.{error}") from error


def _fields(kind: str, places: Mapping[str, Sequence[Any]], time_format: str) -> dict[str, Any]:
    """The same of fields that may have several places: the first that a line has counts.

    Raises:
        ValueError: A name or a place cannot be one. The message is a clause that names it.
    """
    if kind == "logfmt":
        pairs = (_field(name, keys, time_format) for name, keys in places.items())
        return {"pattern": _BEGINS + "".join(pairs)}
    return {"json_fields": {name: _paths(name, paths) for name, paths in places.items()}}


def _paths(name: str, paths: Sequence[Any]) -> tuple[JsonPath, ...]:
    try:
        return tuple(place for path in paths for place in parse_path(path))
    except ValueError as error:
        raise ValueError(f"{name} = {paths[0]!r}: {error}") from None


def _field(name: str, keys: Sequence[Any], time_format: str) -> str:
    """The group of a field; a fraction or a zone may follow a written time, though no digit."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name}: a field's name is a letter, then letters and digits")
    if not all(isinstance(key, str) and _KEY.fullmatch(key) for key in keys):
        raise ValueError(f'{name} = {keys[0]!r}: a key is a text of ASCII without blanks, " and =')
    key = "|".join(re.sub(r"([^A-Za-z0-9])", r"\\\1", text) for text in keys)
    value = rf'(?<="){_QUOTED}(?=")|(?<!"){_BARE}'
    # A written time is cut out, date and clock with the other one beside it are taken whole.
    if name == TIME and time_format and not (written := parse_time_format(time_format)).is_epoch:
        value = rf"{written.shape}(?![0-9])|{value}"
    before = rf"(?:(?!(?:{key})=){_PAIR}){{0,{PAIRS_MAX}}}+"
    return rf'(?={before}(?:(?:{key})="?+(?<{name}>(?>{value})))?+)'


def _named(name: object, key: str) -> LineFormat:
    if not isinstance(name, str) or name not in CATALOGUE:
        raise ConfigError(
            f"{key} = {name!r}: no such line format{close_to(str(name), CATALOGUE)}; allowed are "
            f"{', '.join(CATALOGUE)}, or {_TABLES}"
        )
    return CATALOGUE[name]


def _checked(table: Mapping[Any, Any], part: str, check: Callable[[str], object]) -> str:
    text = table[part]
    if not isinstance(text, str) or not text:
        raise ValueError(f"{part} = {text!r}: must be a text that is not empty")
    try:
        check(text)
    except ValueError as error:
        raise ValueError(f"{part} = {text!r} {error}") from error
    return text


def _ready_made(name: str, table: dict[str, Any]) -> LineFormat:
    """The format of a table of ``catalogue.toml``, where its keys are described."""
    for kind in ("json", "logfmt"):
        if kind in table:
            table |= _fields(kind, table.pop(kind), table["time_format"])
    if table.pop("level_is_priority", False):
        table |= {"levels": _SEVERITIES, "level_names": _PRIORITIES}
    return LineFormat(name=name, **table | {"levels": tuple(table.get("levels", ()))})


_TEXT: Final = (importlib.resources.files(__package__) / "catalogue.toml").read_text("utf-8")
CATALOGUE: Final[Mapping[str, LineFormat]] = MappingProxyType(
    {name: _ready_made(name, table) for name, table in tomllib.loads(_TEXT).items()}
)
"""The ready-made line formats by name, the fixed layout first."""
