"""JSON records out of a seed: nested, with duplicate keys, escapes and odd numbers; some broken."""

import json
import random

from tests.spark.odd_lines import mutated

NUMBERS = (
    *("0", "-0", "-0.0", "1", "-17", "1.00", "1.50", "100", "100.0", "0.1", "123456.789"),
    *("1e3", "1E-7", "-1.5E+10", "1e22", "12e-2", "1e400", "-1e400", "1E+0", "0e9"),
    *("12345678901234567890", "-9223372036854775808", "9223372036854775808", "1" * 38, "1" * 39),
    *(f"0.{'0' * 37}1", f"0.{'0' * 38}1", "12345678901234567890.12", "9" * 1000, "9" * 1001),
)
WORDS = ("ERROR", "INFO", "", "cart", "é", "日本", "😀", "\ud83d", "\x00", "\x1f\t\n\r\b\f", '"\\/')
BROKEN = (
    *("nope", "01", "1.", "+1", ".5", "-", "1e", "NaN", "-Infinity", "tru", "truex", "NULL", "0x1"),
    *("'x'", '"\\x"', '"\\u12"', '"\\U0041"', '"\t"', '"', "[1,]", "[,]", '{"a":1,}', "{,}"),
    *("{1:2}", "{a:1}", '{"a"}', "[1 2]", "1/**/", "//", "", ",", "]", "}"),
    *("\x00", "\ufeff", "\xa0"),
)
KEYS = ("time", "timestamp", "@timestamp", "level", "severity", "log.level", "log", "Level")
NESTED = ("level", "service", "a", "a", "b", "a.b", "n", "é", "it's", '"', "a/b", "", "\ud83d")


class Documents:
    """Makes records."""

    def __init__(self, seed: object) -> None:
        self._rng = random.Random(str(seed))

    def record(self, times: tuple[str, ...]) -> bytes:
        """A record, in four of five cases one object."""
        rng = self._rng
        members = [self._member(rng.choice(KEYS), times) for _ in range(rng.randrange(2, 6))]
        members += [self._pair(rng.choice(NESTED), self._value(3)) for _ in range(rng.randrange(4))]
        if rng.random() < 0.7:
            members += [self._pair("time", json.dumps(rng.choice(times).replace(" ", "T")))]
            members += [self._pair("level", json.dumps(rng.choice(["ERROR", "INFO"])))]
        if rng.random() < 0.08:
            members.append(self._pair(rng.choice(["x", "level"]), rng.choice(BROKEN)))
        rng.shuffle(members)
        text = self._blank() + self._joined("{", members, "}") + self._blank()
        if rng.random() < 0.06:
            text += rng.choice(
                [text, "x", "]", "}", ',"x"', ',"x"]', '],"x":[{}', "\x00", "\ufeff"]
            )
        value = text.encode("utf-8", "surrogatepass")
        if rng.random() < 0.9:
            return value
        return mutated(
            rng, value, 1, within=len(value), others=b'{}[]:,"\\ 0e-.\x00\x1f\xff\xc3\xed'
        )

    def _member(self, key: str, times: tuple[str, ...]) -> str:
        rng = self._rng
        if "time" in key and rng.random() < 0.8:
            after = rng.choice(["", "Z", ".123+01:00", " ", "0", "T", ",5"])
            return self._pair(key, self._string(rng.choice(times).replace(" ", "T") + after))
        return self._pair(key, self._value(2))

    def _value(self, depth: int) -> str:
        rng = self._rng
        match rng.randrange(9 if depth else 5):
            case 0:
                return rng.choice(["true", "false", "null"])
            case 1 | 2:
                return rng.choice(NUMBERS)
            case 3 | 4:
                return self._string(rng.choice(WORDS))
            case 5:
                items = [self._value(depth - 1) for _ in range(rng.randrange(4))]
                return self._joined("[", items, "]")
            case _:
                keys = rng.choices(NESTED, k=rng.randrange(5))
                pairs = [self._pair(key, self._value(depth - 1)) for key in keys]
                return self._joined("{", pairs, "}")

    def _pair(self, key: str, value: str) -> str:
        return self._string(key) + self._blank() + ":" + self._blank() + value

    def _joined(self, opening: str, items: list[str], closing: str) -> str:
        inside = ",".join(self._blank() + item + self._blank() for item in items)
        return opening + (inside or self._blank()) + closing

    def _string(self, text: str) -> str:
        """In quotes, some characters escaped that need not be."""
        written = ""
        for character in text:
            if self._rng.random() < 0.1:
                units = character.encode("utf-16-be", "surrogatepass").hex()
                units = units.upper() if self._rng.random() < 0.5 else units
                written += "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
            elif character in '"\\' or character < " " or "\ud800" <= character < "\ue000":
                written += json.dumps(character)[1:-1]
            else:
                written += character
        return f'"{written}"'

    def _blank(self) -> str:
        return self._rng.choice(["", "", "", "", " ", "\n", "\r\n\t "])
