r"""Line patterns: the part of the regular expression languages in which Java and Python agree.

Spark counts with Java's regular expressions, the configuration is checked with Python's. A
construct that the two read differently is refused, one that differs only in spelling is translated
(``(?P<time>…)`` and ``(?<time>…)``, ``$``, ``\b``). So what passes here means the same there.

Some repeats are refused too, since one unusual line could keep a backtracking matcher busy for
hours or overflow Java's stack: see :func:`_check_repeat` and :mod:`tally.lines.backtracking`.
"""

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from tally.lines import backtracking
from tally.lines.backtracking import Chars, Group, Part, Repeated, Taken, parts_in

TIME: Final = "time"
"""The named group that holds the time; a pattern for lines without one does without."""
DATE: Final = "date"
CLOCK: Final = "clock"
"""Two groups in place of :data:`TIME`: the time is their texts with a blank between them."""
LEVEL: Final = "level"
"""The named group that holds the level; a pattern for lines without one does without."""

BLANKS: Final = (
    "\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
)
"""Unicode's blanks besides that of ASCII."""
USUAL: Final[Mapping[int, str]] = str.maketrans(dict.fromkeys(BLANKS, " "))
"""Each of them as that of ASCII."""

HEAD_BYTES: Final = 4096
"""A pattern sees this much of a line, so that a 10 MB line costs no more than another."""

_GROUP_REPEATS_MAX: Final = 100
_LINE_END: Final = r"(?![^\r\n])"
_CLASS_ESCAPES: Final = "dDsSwWt"
_JAVA_WORD_BOUNDARY: Final = r"(?:(?<=\w)(?!\w)|(?<!\w)(?=\w))"
_NAMED_GROUP: Final = re.compile(r"\(\?P?<([A-Za-z][A-Za-z0-9]*)>")
_PLAIN_GROUP: Final = re.compile(r"\(\?(?::|=|!|<=|<!|>|i:)|\((?!\?)")
_LOOKAROUNDS: Final = frozenset({"(?=", "(?!", "(?<=", "(?<!"})
_QUANTIFIER: Final = re.compile(r"(?:([*+?])|\{(\d+)(?:(,)(\d*))?\})([?+]?)")
_ESCAPE: Final = re.compile(r"\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|[ -/:-@\[-`{-~])")


@dataclass(frozen=True, kw_only=True, slots=True)
class LinePattern:
    """A checked pattern in both languages. Build it with :func:`parse_pattern`."""

    java: str
    r"""For ``java.util.regex``, inside ``\A(?:…)``. It sees a record up to its first line feed or
    carriage return, as if the record ended there: no part takes one, and ``$`` holds before it."""
    python: re.Pattern[str]
    """For Python's ``match`` at the start of a line that holds neither of the two."""
    ends: Mapping[str, tuple[int, int]]
    """All named groups, in order: where each ends in Java's, and how many groups begin before."""
    parts: Group
    """All of it, taken apart."""
    spelling: str
    """What a fingerprint is made of: never changes, also where the two above do."""

    @property
    def groups(self) -> tuple[str, ...]:
        """All named groups, in order."""
        return tuple(self.ends)

    def match(self, line: bytes, *, any_blank: bool) -> re.Match[str] | None:
        """The match of what a pattern sees of a line; any blank may stand for that of ASCII."""
        head = re.split("[\r\n]", line[:HEAD_BYTES].decode(errors="replace"), maxsplit=1)[0]
        return self.python.match(head.translate(USUAL) if any_blank else head)


@dataclass(slots=True)
class _Scanner:
    """Walks over a pattern once, checks it and writes it down in both languages."""

    text: str
    at: int = 0
    written: list[tuple[str, str, str]] = field(default_factory=list)
    """Piece by piece: Java's, Python's, and that of a fingerprint."""
    ends: dict[str, tuple[int, int]] = field(default_factory=dict)
    captures: int = 0
    """How many groups have begun that capture."""
    whole: Group = field(default_factory=Group)
    groups: list[tuple[Group, int]] = field(default_factory=list)
    """Those that are open, and where each begins in the pattern."""
    atom: Part | None = None
    """What a quantifier may follow here."""

    def scan(self) -> None:
        while self.at < len(self.text):
            match self.text[self.at]:
                case "\\":
                    self._escape()
                case "[":
                    self._character_class()
                case "(":
                    self._open()
                case ")":
                    self._close()
                case "*" | "+" | "?" | "{":
                    self._quantifier()
                case "^":
                    self._take(1)
                case "|":
                    self._take(1)
                    self._inside.branches.append([])
                case "$":
                    self._take(1, java=_LINE_END, python=r"\Z", spelling=r"\z")
                    self._inside.branches[-1].append(Taken(text="$", chars=frozenset()))
                case _:
                    self._take_character(1)

    @property
    def _inside(self) -> Group:
        """The innermost open group, or the whole pattern."""
        return self.groups[-1][0] if self.groups else self.whole

    def _take_character(self, width: int) -> None:
        """Move on over what takes one character of a line."""
        text = self.text[self.at : self.at + width]
        chars = backtracking.characters_of(text, self.text)
        self._take(width, java=_within_line(text, chars), spelling=text)
        self.atom = Taken(text=text, chars=chars)
        self._inside.branches[-1].append(self.atom)

    def _take(self, width: int, *, java: str = "", python: str = "", spelling: str = "") -> None:
        """Move on by ``width``, writing the same text to both languages unless others are given."""
        taken = self.text[self.at : self.at + width]
        self.written.append((java or taken, python or taken, spelling or java or taken))
        self.at += width
        self.atom = None

    def _escape(self) -> None:
        if self.text.startswith(r"\b", self.at):
            self._take(2, java=_JAVA_WORD_BOUNDARY)
        else:
            self._take_character(_escape_width(self.text, self.at))

    def _character_class(self) -> None:
        start = end = self.at + 1 + (self.text[self.at + 1 : self.at + 2] == "^")
        while self.text[end : end + 1] != "]" or end == start:
            end = self._class_member(end)
        self._take_character(end + 1 - self.at)

    def _class_member(self, at: int) -> int:
        """Check the member of a character class at ``at``; where the next one starts."""
        member = self.text[at : at + 1]
        if not member:
            raise ValueError("opens a character class '[' that is never closed")
        if member == "\\":
            return at + _escape_width(self.text, at)
        if member in "[]" or self.text[at : at + 2] in {"&&", "--", "~~", "||"}:
            raise ValueError(
                f"holds {self.text[at : at + 2]!r} in a character class, which Java and Python "
                "read differently: write a backslash before it"
            )
        return at + 1

    def _open(self) -> None:
        if self.text.startswith("(?i)", self.at):
            if self.at:
                raise ValueError("holds (?i) after its start; put it first or write (?i:…)")
            self._take(4)
        elif named := _NAMED_GROUP.match(self.text, self.at):
            name = named[1]
            self.ends[name] = (0, self.captures)
            self.captures += 1
            self._open_group("(?<", name=name)
            self._take(len(named.group()), java=f"(?<{name}>", python=f"(?P<{name}>")
        elif plain := _PLAIN_GROUP.match(self.text, self.at):
            self.captures += plain.group() == "("
            self._open_group(plain.group())
            self._take(len(plain.group()))
        else:
            raise ValueError(
                f"holds {self.text[self.at : self.at + 4]!r}; groups may be (…), (?:…), (?<name>…) "
                "with a name of letters and digits, (?=…), (?!…), (?<=…), (?<!…), (?>…), (?i:…)"
            )

    def _open_group(self, opener: str, *, name: str = "") -> None:
        is_ahead = opener in _LOOKAROUNDS
        parts = Group(is_atomic=is_ahead or opener == "(?>", is_ahead=is_ahead, name=name)
        self._inside.branches[-1].append(parts)
        self.groups.append((parts, self.at))

    def _close(self) -> None:
        if not self.groups:
            raise ValueError("closes a group ')' that was never opened")
        group, start = self.groups.pop()
        self._take(1)
        if group.name:
            self.ends[group.name] = (sum(len(java) for java, _, _ in self.written), self.captures)
        group.text = self.text[start : self.at]
        self.atom = group

    def _quantifier(self) -> None:
        found = _QUANTIFIER.match(self.text, self.at)
        if not found:
            raise ValueError(
                "holds '{' that is no {n}, {n,} or {n,m}: write \\{ for the character itself"
            )
        if self.atom is None:
            raise ValueError(f"holds {found.group()!r} with nothing before it to repeat")
        least, most = _bounds(found)
        repeated = Repeated(
            text=self.atom.text + found.group(),
            part=self.atom,
            least=least,
            most=most,
            is_possessive=found[5] == "+",
        )
        _check_repeat(repeated, found.group())
        self._inside.branches[-1][-1] = repeated
        self._take(len(found.group()))


def _check_repeat(repeated: Repeated, quantifier: str) -> None:
    """Refuse repeats that can backtrack without end or overflow Java's stack.

    A possessive repeat (``*+``) never gives back what it took and is always allowed. Else a group
    may be repeated only some hundred times (Java recurses once per repetition, and a stack that
    overflows ends Spark's whole JVM), and only when nothing in it backtracks (else the ways to
    split a line multiply).
    """
    if repeated.is_possessive or repeated.most == 1 == repeated.least:
        return
    if isinstance(repeated.part, Group) and repeated.most > _GROUP_REPEATS_MAX:
        raise ValueError(
            f"repeats a group by {quantifier!r}, more than {_GROUP_REPEATS_MAX} times: one long "
            "line could overflow Java's stack. Bound it, for example {0,20}, or write it "
            f"possessive, {quantifier.rstrip('?')}+"
        )
    if _backtracks(repeated.part) and repeated.most > 1:
        raise ValueError(
            f"repeats by {quantifier!r} a group that itself repeats or chooses: one odd line could "
            "keep it busy for hours. Write the inner repeat possessive, for example *+, or the "
            "choice atomic, (?>…)"
        )


def _backtracks(part: Part) -> bool:
    """Whether the matcher may come back to a part, for another way in which it takes a line."""
    match part:
        case Taken():
            return False
        case Repeated(part=inner, least=least, most=most):
            is_choice = least != most or (isinstance(inner, Group) and most > 1)
            return _backtracks(inner) or (is_choice and not part.is_possessive)
        case Group():
            inside = (_backtracks(inner) for branch in part.branches for inner in branch)
            return not part.is_atomic and (len(part.branches) > 1 or any(inside))


def _check_lookarounds(whole: Group) -> None:
    """Refuse a named group in a lookaround that is part of a group or a choice."""
    allowed = whole.branches[0] if len(whole.branches) == 1 else []
    lookarounds = [p for p in parts_in(whole) if isinstance(p, Group) and p.is_ahead]
    inside = chain.from_iterable(parts_in(group) for group in lookarounds if group not in allowed)
    if any(isinstance(part, Group) and part.name for part in inside):
        raise ValueError(
            "has a lookahead with a named group inside of a group or a choice; Java "
            "keeps what it found there even where the rest then fails. Put it outside"
        )


@functools.cache
def parse_pattern(text: str) -> LinePattern:
    """Check a pattern and write it down for Java and for Python.

    Raises:
        ValueError: The pattern is no regular expression, uses what Java and Python read
            differently, or could run without end. The message is a clause that follows the
            pattern's name.
    """
    scanner = _Scanner(text)
    try:
        scanner.scan()
        java, python, spelling = map("".join, zip(*scanner.written, strict=True))
        compiled = re.compile(python, re.ASCII)
    except re.error as error:
        raise ValueError(f"is no regular expression: {error}") from error
    _check_lookarounds(scanner.whole)
    backtracking.check_ways(scanner.whole)
    return LinePattern(
        java=java,
        python=compiled,
        ends=scanner.ends,
        parts=scanner.whole,
        spelling=spelling,
    )


def _within_line(text: str, chars: Chars) -> str:
    r"""What takes one character, in Java's spelling, so that it takes no line end.

    A negated class gets the line ends as members, for its speed: Java is slow at an intersection.
    """
    if chars.isdisjoint("\r\n"):
        return text
    if text == ".":
        return r"[^\r\n]"
    if text.startswith("[^"):
        members = text[2:]
        return r"[^\r\n" + ("\\" if members.startswith("-") else "") + members
    return rf"[{text}&&[^\r\n]]"


def _bounds(found: re.Match[str]) -> tuple[int, int]:
    """Least and most repetitions of a quantifier; more than a line has characters are none."""
    sign, least, comma, most, _ = found.groups()
    if sign:
        return (1 if sign == "+" else 0), (1 if sign == "?" else HEAD_BYTES)
    if not comma:
        return int(least), int(least)
    return int(least), min(int(most or HEAD_BYTES), HEAD_BYTES)


def _escape_width(text: str, at: int) -> int:
    """How many characters an escape has; one that Java and Python read differently is refused."""
    found = _ESCAPE.match(text, at)
    escape = found.group() if found else text[at : at + 2]
    letter = escape[1:2]
    if letter == "u" and 0xD800 <= int(escape[2:] or "0", 16) <= 0xDFFF:
        raise ValueError(f"holds {escape!r}, half of a character: write the whole character")
    if not letter or (letter.isalnum() and len(escape) == 2 and letter not in _CLASS_ESCAPES):
        raise ValueError(
            f"holds {escape!r}; of the escapes by a letter only \\d \\D \\s \\S \\w \\W \\t \\b, "
            "\\xhh and \\uhhhh mean the same to Java and Python (\\b outside of [ ])"
        )
    return len(escape)
