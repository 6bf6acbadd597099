"""Which option of a line format a record seems to need, by its bytes."""

import json
from typing import Any, Final

from tally.lines.options import BLANKS, BYTE_ORDER_MARK, Accepted, LineOptions

_HEADER_BYTES: Final = 5
"""Of a schema registry: a zero, and the number of a schema."""
_HEAD_CHARS: Final = 40
"""Where a time may stand."""


def option_guess(value: bytes, options: LineOptions) -> str | None:
    """The option that a record seems to need, as the configuration has it; None for none.

    Args:
        value: A record.
        options: Those that are set.
    """
    line = options.line_of(value)
    text = line.decode("utf-8", "replace")
    if line[:1] == b"\0" and len(line) > _HEADER_BYTES and not options.skip_bytes:
        return f"skip_bytes = {_HEADER_BYTES}"
    if line.startswith(BYTE_ORDER_MARK):
        return _accept(Accepted.BYTE_ORDER_MARK)
    if Accepted.NAN not in options and _has_nan(text):
        return _accept(Accepted.NAN)
    if Accepted.BLANKS not in options and set(text[:_HEAD_CHARS]) & set(BLANKS):
        return _accept(Accepted.BLANKS)
    return None


def _accept(accepted: Accepted) -> str:
    return f'accept = ["{accepted}"]'


def _has_nan(text: str) -> bool:
    """Whether a line is a JSON object but for numbers that are none."""
    found: list[str] = []
    try:
        document: Any = json.loads(text, parse_constant=found.append) if text[:1] == "{" else None
    except (ValueError, RecursionError):
        return False
    return document is not None and bool(found)
