"""JSON lines: which fields they have, and where in the document each stands.

What a value is as text, and which records are understood, is defined in ``docs/line-formats.md``;
:mod:`tally.spark.json_columns` computes it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

JsonPath = tuple[str, ...]
"""Keys of nested objects, the outermost first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JsonField:
    """A field of JSON lines."""

    name: str
    """By which labels, filters and the line format know it."""
    paths: tuple[JsonPath, ...]
    """Where its value is looked for; the first place that has one wins."""


COMMON_FIELDS: Final = (
    JsonField(name="time", paths=(("@timestamp",), ("timestamp",), ("time",))),
    JsonField(name="level", paths=(("level",), ("severity",), ("log.level",), ("log", "level"))),
)
"""Where programs that write JSON have time and level."""


def parse_json_fields(table: Mapping[str, object]) -> tuple[JsonField, ...]:
    """The fields that a table ``{name = path}`` declares, in its order.

    Raises:
        ValueError: A path is invalid. The message is a clause that names the field.
    """
    fields = []
    for name, path in table.items():
        try:
            fields.append(JsonField(name=name, paths=parse_path(path)))
        except ValueError as error:
            raise ValueError(f"{name} = {path!r}: {error}") from None
    return tuple(fields)


def parse_path(path: object) -> tuple[JsonPath, ...]:
    """The places that a path means.

    Args:
        path: A text: the key that is written exactly so, else, with dots, nested keys. Or a list of
            texts: exactly these nested keys.

    Raises:
        ValueError: It is neither, or names a key that cannot be looked up.
    """
    match path:
        case str():
            nested = tuple(path.split("."))
            paths = [(path,), nested] if "." in path and all(nested) else [(path,)]
        case list() if path and all(isinstance(key, str) for key in path):
            paths = [tuple(path)]
        case _:
            raise ValueError("a path is a text, or a list of texts that names the nested keys")
    for key in (key for keys in paths for key in keys):
        _check_key(key)
    return tuple(paths)


def _check_key(key: str) -> None:
    if not key:
        raise ValueError("a key must not be empty")
    if "'" in key and '"' in key:
        raise ValueError("a key with both ' and \" in it cannot be looked up")
