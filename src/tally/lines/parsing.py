"""The line format that a configuration value means, or why it means none."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from tally.errors import ConfigError
from tally.formatting import close_to
from tally.lines.format import CATALOGUE, LineFormat, time_names
from tally.lines.json_fields import JsonField, parse_json_fields
from tally.lines.logfmt import logfmt_pattern
from tally.lines.options import OPTIONS, parse_options
from tally.lines.pattern import CLOCK, DATE, TIME, parse_pattern
from tally.lines.time_format import parse_time_format

CUSTOM: Final = "custom"
"""The name of a format that is no ready-made one."""

_KINDS: Final = frozenset({"name", "pattern", "json", "logfmt"})
_KEYS: Final = _KINDS | {"time_format"} | OPTIONS
_TABLES: Final = (
    "a table with pattern or json, and time_format where the lines have a time; or with logfmt, or "
    "with the name of a ready-made one. It may have the options skip_bytes, default_level, accept"
)


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


def _from_table(table: Mapping[object, object], key: str) -> LineFormat:
    fields: tuple[JsonField, ...] = ()
    pattern, lacks = "", f"{key}.json = {table.get('json')!r}: must be a table of fields"
    if "name" in table:
        if "time_format" in table:
            raise ConfigError(f"{key}.time_format: a ready-made format has its own: leave it out")
        return _named(table["name"], f"{key}.name")
    has_format = "time_format" in table
    time_format = _checked(table, "time_format", parse_time_format, key) if has_format else ""
    if "json" in table:
        fields = _json_fields(table["json"], key)
        names = tuple(field.name for field in fields)
        lacks += f", {TIME} among them, or {DATE} and {CLOCK}"
    else:
        pattern = _pattern(table, time_format, key)
        names = parse_pattern(pattern).groups
        lacks = (
            f"{key}.pattern = {pattern!r} lacks the named group (?<{TIME}>…), or (?<{DATE}>…) and "
            f"(?<{CLOCK}>…)"
            if "pattern" in table
            else f"{key}.logfmt = {table['logfmt']!r} lacks {TIME}, or {DATE} and {CLOCK}"
        )
    if has_format and not time_names(names):
        raise ConfigError(lacks)
    if not has_format and (found := time_names(names)):
        raise ConfigError(
            f"{key}.time_format is missing: say how the text of {' and '.join(found)} is written"
        )
    return LineFormat(name=CUSTOM, pattern=pattern, json_fields=fields, time_format=time_format)


def _pattern(table: Mapping[object, object], time_format: str, key: str) -> str:
    if "pattern" in table:
        return _checked(table, "pattern", parse_pattern, key)
    keys = table["logfmt"]
    if not isinstance(keys, Mapping) or not keys:
        raise ConfigError(f"{key}.logfmt = {keys!r}: must be a table of fields and their keys")
    try:
        return logfmt_pattern({name: (of,) for name, of in keys.items()}, time_format)
    except ValueError as error:
        raise ConfigError(f"{key}.logfmt.{error}") from error


def _named(name: object, key: str) -> LineFormat:
    if not isinstance(name, str) or name not in CATALOGUE:
        raise ConfigError(
            f"{key} = {name!r}: no such line format{close_to(str(name), CATALOGUE)}; allowed are "
            f"{', '.join(CATALOGUE)}, or {_TABLES}"
        )
    return CATALOGUE[name]


def _json_fields(fields: object, key: str) -> tuple[JsonField, ...]:
    if not isinstance(fields, Mapping) or not fields:
        raise ConfigError(
            f"{key}.json = {fields!r}: must be a table of fields, {TIME} among them where the "
            "lines have one"
        )
    try:
        return parse_json_fields(fields)
    except ValueError as error:
        raise ConfigError(f"{key}.json.{error}") from error


def _checked(
    table: Mapping[object, object], part: str, check: Callable[[str], object], key: str
) -> str:
    text = table[part]
    if not isinstance(text, str) or not text:
        raise ConfigError(f"{key}.{part} = {text!r}: must be a text that is not empty")
    try:
        check(text)
    except ValueError as error:
        raise ConfigError(f"{key}.{part} = {text!r} {error}") from error
    return text
