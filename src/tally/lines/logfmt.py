r"""Lines of ``key=value`` in any order (logfmt), as a pattern with a group for each field.

A value stands bare, up to the next blank, or in double quotes with backslashes for escapes, which
are not resolved. Each group is looked for from the start of the line on, over whole pairs, so that
no key is found inside of a value. The first pair of a key counts. A line that does not begin with a
pair is none.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from tally.lines.pattern import TIME
from tally.lines.time_format import parse_time_format

PAIRS_MAX: Final = 200
"""So many pairs are passed over: a bound to what one line can cost."""

_QUOTED: Final = r'(?:[^"\\]|\\.)*+'
_BARE: Final = r'(?:[^\s"]\S*+)?+'
_PAIR: Final = rf'[^\s="]++(?:=(?>"{_QUOTED}"|{_BARE}))?+\s*+'
_BEGINS: Final = "(?=[!#-<>-~]++=)"
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*")
_KEY: Final = re.compile(r"[!#-<>-~]+")


def logfmt_pattern(keys: Mapping[str, Sequence[object]], time_format: str) -> str:
    """The pattern for lines of ``key=value``.

    Args:
        keys: By the field's name the keys that it may have; the first in a line counts.
        time_format: How the time is written; empty where the lines have none. A fraction or a zone
            may follow a written time, though no digit.

    Raises:
        ValueError: A name or a key cannot be one. The message is a clause that names it.
    """
    return _BEGINS + "".join(_field(name, of, time_format) for name, of in keys.items())


def _field(name: str, keys: Sequence[object], time_format: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name}: a field's name is a letter, then letters and digits")
    texts = [key for key in keys if isinstance(key, str) and _KEY.fullmatch(key)]
    if len(texts) < len(keys):
        raise ValueError(f'{name} = {keys[0]!r}: a key is a text of ASCII without blanks, " and =')
    key = "|".join(re.sub(r"([^A-Za-z0-9])", r"\\\1", text) for text in texts)
    value = rf'(?<="){_QUOTED}(?=")|(?<!"){_BARE}'
    # A written time is cut out, date and clock with the other one beside it are taken whole.
    if name == TIME and time_format and not (written := parse_time_format(time_format)).is_epoch:
        value = rf"{written.shape}(?![0-9])|{value}"
    before = rf"(?:(?!(?:{key})=){_PAIR}){{0,{PAIRS_MAX}}}+"
    return rf'(?={before}(?:(?:{key})="?+(?<{name}>(?>{value})))?+)'
