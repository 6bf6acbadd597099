"""Options of any line format: what stands before a line, what it may lack, and odd spellings.

Each is off unless it is set, and part of the fingerprint then.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Final

BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"

BLANKS: Final = (
    "\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
)
"""Unicode's blanks besides that of ASCII."""

SKIP_BYTES_MAX: Final = 1024


class Accepted(StrEnum):
    """What is understood besides."""

    BYTE_ORDER_MARK = "byte_order_mark"
    """UTF-8's mark before a line."""
    BLANKS = "unicode_blanks"
    """:data:`BLANKS` for the blank of ASCII: in a pattern's line, and in the time of JSON lines."""
    EXPONENT = "exponent"
    """A number since 1970 with an exponent, such as ``1.7e9``."""
    NAN = "nan"
    """``NaN``, ``Infinity`` and ``-Infinity`` in JSON, which is then read as ``null``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LineOptions:
    """Options of a line format; see :func:`parse_options`."""

    skip_bytes: int = 0
    """Bytes before each line, such as the five of a schema registry's header."""
    default_level: str = ""
    """The level of a line that has none, or an empty one; empty where such a line is malformed.
    Does nothing for a pattern that matches no line without a level: such a line is no match."""
    accept: tuple[Accepted, ...] = ()
    """What is understood besides, sorted."""

    def __contains__(self, accepted: Accepted) -> bool:
        return accepted in self.accept

    def line_of(self, value: bytes) -> bytes:
        """A record's value without what stands before its line."""
        line = value[self.skip_bytes :]
        return line.removeprefix(BYTE_ORDER_MARK) if Accepted.BYTE_ORDER_MARK in self else line

    def fingerprint(self) -> str:
        """Identifies what is set; empty when nothing is."""
        parts = [
            f"skip {self.skip_bytes}" if self.skip_bytes else "",
            f"default level {self.default_level}" if self.default_level else "",
            f"accept {', '.join(self.accept)}" if self.accept else "",
        ]
        return "; ".join(filter(None, parts))


NO_OPTIONS: Final = LineOptions()

OPTIONS: Final = frozenset(field.name for field in fields(LineOptions))


def parse_options(table: Mapping[Any, object]) -> LineOptions:
    """The options in a line format's table; its other keys are not looked at.

    Raises:
        ValueError: One is not valid. The message begins with its name.
    """
    skip, level = table.get("skip_bytes", 0), table.get("default_level", "")
    if type(skip) is not int or not 0 <= skip <= SKIP_BYTES_MAX:
        raise ValueError(f"skip_bytes = {skip!r}: must be a number from 0 to {SKIP_BYTES_MAX:,}")
    if not isinstance(level, str) or any(map(str.isspace, level)):
        raise ValueError(f"default_level = {level!r}: a level is one word")
    accept, known = table.get("accept", ()), list(Accepted)
    if (
        isinstance(accept, str)
        or not isinstance(accept, Sequence)
        or any(of not in known for of in accept)
    ):
        raise ValueError(f"accept = {accept!r}: must be a list of some of {', '.join(known)}")
    return LineOptions(
        skip_bytes=skip,
        default_level=level,
        accept=tuple(sorted(map(Accepted, set(accept)))),
    )
