"""What a JSON record says, read by Python's own ``json``, made strict.

Independent of :mod:`tally.spark.json_columns`: it shares no code, and the rules are those of
``docs/line-formats.md``, written down again.
"""

import json
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

DEPTH_MAX = 999
NUMBER_DIGITS_MAX = 1000

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_LONE = re.compile("[\ud800-\udfff]")
_ESCAPES = {character: json.dumps(character)[1:-1] for character in '"\\\b\f\n\r\t'}


class Number(str):
    """A number as it was written."""

    __slots__ = ()


def read_object(value: bytes, *, with_nan: bool = False) -> dict[str, Any] | None:
    """The record's object, the last of duplicate keys in it; None when it is not one object.

    With NaN: and the infinities, as no value.
    """
    text = value.decode(errors="replace")
    if _depth(text) > DEPTH_MAX:
        return None
    try:
        with _room_for(DEPTH_MAX):
            found = json.loads(
                text,
                parse_int=_number,
                parse_float=_number,
                parse_constant=(lambda _: None) if with_nan else _no,
                # Of equal keys the last; a key is text like any other.
                object_pairs_hook=lambda pairs: {_whole(key): value for key, value in pairs},
            )
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def json_field(found: dict[str, Any], paths: Sequence[Sequence[str]]) -> str | None:
    """The text of the first path that has a value; None when none has one."""
    for path in paths:
        value: Any = found
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None:
            return text_of(value)
    return None


def text_of(value: Any) -> str:
    """A value as text: a string as it is, anything else as JSON in one form."""
    if isinstance(value, Number):
        return number_text(value)
    return _whole(value) if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case Number():
            text = number_text(value)
            return f'"{text}"' if text.endswith("Infinity") else text
        case str():
            return '"' + "".join(map(_escaped, _whole(value))) + '"'
        case list():
            return f"[{','.join(map(_json, value))}]"
        case dict():
            keys = sorted(value, key=lambda key: key.encode("utf-16-be", "surrogatepass"))
            return "{" + ",".join(f"{_json(key)}:{_json(value[key])}" for key in keys) + "}"
    raise TypeError(value)


def number_text(written: str) -> str:
    """Up to 38 digits as a plain decimal without needless zeros, else as Java prints a double."""
    if not set(written) & set("eE"):
        exact = Decimal(written)
        _, digits, exponent = exact.as_tuple()
        if isinstance(exponent, int) and len(digits) <= 38 and -exponent <= 38:
            plain = format(exact, "f")
            plain = plain.rstrip("0").rstrip(".") if "." in plain else plain
            return "0" if plain == "-0" else plain
    return _double_text(float(written))


def _double_text(number: float) -> str:
    """As ``Double.toString`` says it."""
    sign, size = "-" if str(number).startswith("-") else "", abs(number)
    if size == float("inf"):
        return f"{sign}Infinity"
    if not size:
        return f"{sign}0.0"
    if 1e-3 <= size < 1e7:
        return sign + (str(size) if "." in str(size) else f"{size:.1f}")
    digits, exponent = f"{Decimal(repr(size)).normalize():E}".split("E")
    return f"{sign}{digits if '.' in digits else digits + '.0'}E{int(exponent)}"


def _escaped(character: str) -> str:
    unnamed = f"\\u{ord(character):04X}" if character < " " else character
    return _ESCAPES.get(character, unnamed)


def _whole(text: str) -> str:
    return _LONE.sub("?", text)


def _number(written: str) -> Number:
    if sum(map(str.isdigit, written)) > NUMBER_DIGITS_MAX:
        raise ValueError(written[:10])
    return Number(written)


def _no(name: str) -> None:
    raise ValueError(name)


def _depth(text: str) -> int:
    depth = deepest = 0
    for character in re.findall(r"[][{}]", _STRING.sub("", text)):
        depth += 1 if character in "[{" else -1
        deepest = max(deepest, depth)
    return deepest


@contextmanager
def _room_for(depth: int) -> Iterator[None]:
    """Let Python's own reader go as deep."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(before + 4 * depth)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
