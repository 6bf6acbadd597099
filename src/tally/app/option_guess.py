"""Which option of a line format a record seems to need, by its bytes."""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from tally.errors import ConfigError
from tally.lines.options import BLANKS, BYTE_ORDER_MARK, Accepted, LineOptions
from tally.lines.parsing import parse_line_format

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
    if line[:1] == b"\0" and len(line) > _HEADER_BYTES and not options.skip_bytes:
        return f"skip_bytes = {_HEADER_BYTES}"
    accepted = _accepted_guess(value, options)
    return f'accept = ["{accepted}"]' if accepted else None


def accepting(
    configured: str | Mapping[str, Any], malformed: Iterable[bytes]
) -> str | Mapping[str, Any]:
    """A line format as it is configured, with what malformed records seem to need accepted.

    Only what does something for this format.
    """
    options = parse_line_format(configured, key="line_format").options
    for accepted in sorted({guess for v in malformed if (guess := _accepted_guess(v, options))}):
        table = {"name": configured} if isinstance(configured, str) else configured
        with suppress(ConfigError):
            wider = {**table, "accept": [*table.get("accept", ()), str(accepted)]}
            parse_line_format(wider, key="line_format")
            configured = wider
    return configured


def _accepted_guess(value: bytes, options: LineOptions) -> Accepted | None:
    line = options.line_of(value)
    text = line.decode("utf-8", "replace")
    if line.startswith(BYTE_ORDER_MARK):
        return Accepted.BYTE_ORDER_MARK
    if Accepted.NAN not in options and _has_nan(text):
        return Accepted.NAN
    if Accepted.BLANKS not in options and set(text[:_HEAD_CHARS]) & set(BLANKS):
        return Accepted.BLANKS
    return None


def _has_nan(text: str) -> bool:
    """Whether a line is a JSON object but for numbers that are none."""
    found: list[str] = []
    try:
        document: Any = json.loads(text, parse_constant=found.append) if text[:1] == "{" else None
    except (ValueError, RecursionError):
        return False
    return document is not None and bool(found)
