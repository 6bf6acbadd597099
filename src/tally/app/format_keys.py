"""The keys of a pipeline by which a line format that was tried is configured."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tally.formatting import inline_toml, plural
from tally.lines.format import LineFormat
from tally.lines.time_rule import TimeRule

_ERRORS: Final = frozenset({"SEVERE", "E"})
"""Names of the level of errors that do not begin with ``err``: Java's own logging, Android."""
_KNOWN: Final = frozenset(
    {
        *("trace", "verbose", "debug", "fine", "finer", "finest", "config", "info", "information"),
        *("log", "notice", "statement", "warn", "warning", "err", "error", "severe", "fatal"),
        *("crit", "critical", "alert", "emerg", "emergency", "panic", "dpanic", "audit", "off"),
    }
)
"""Levels that a logging library has, in lower case."""
_NAMED: Final = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class FormatKeys:
    """What is to be configured."""

    pipeline: str | None
    """The pipeline; None for one that is still to be configured."""
    topic: str | None
    """Its topic; None when a file was tried."""
    line_format: str | Mapping[str, Any]
    """As the configuration says it."""
    time_rule: TimeRule
    """How the minute follows."""
    levels: list[str] | None
    """Those to count; None for the default."""
    seen: Sequence[str]
    """The levels of the sample, the most frequent first."""
    has_known_level: bool
    """Whether one of these levels is known to be one, or there is no level."""
    continuations: int
    """Malformed lines that begin no record."""
    lacking_level: int = 0
    """Lines that are malformed because they have no level."""
    offsets: Sequence[str] = ()
    """Offsets from UTC of different size that stand behind the times."""


def keys_to_paste(found: FormatKeys) -> str:
    """The keys that differ from the defaults, as TOML; a comment where they would count nothing."""
    there = ", ".join(found.seen[:_NAMED])
    if not found.has_known_level:
        return (
            f"# what stands where the level should is no level that is known: {there}\n"
            "# try another format, or a pattern of your own"
        )
    rule, levels = found.time_rule, found.levels
    keys: dict[str, Any] = {"topics": [found.topic or "TOPIC"], "line_format": found.line_format}
    keys |= {"time": "record"} if rule.from_record else {}
    keys |= {"time": "instant"} if rule.by_offset else {}
    keys |= {"assume_year": rule.assume_year} if rule.assume_year is not None else {}
    keys |= {"time_zone": rule.zone} if rule.zone is not None else {}
    keys |= {"levels": levels} if levels is not None else {}
    rows = [f"{key} = {inline_toml(value)}" for key, value in keys.items()]
    if levels and not any(map(_is_error, levels)):
        rows.append("# all levels of the sample: keep those that mean an error")
    counted = ["ERROR"] if levels is None else levels
    if counted and found.seen and not set(counted) & set(found.seen):
        rows.append(f"# no line of the sample is at {', '.join(counted)}: {there}")
    if levels == []:
        rows.append('# to count some of them only: filter = { text = ["…"] }')
    if found.lacking_level:
        rows.append(
            f"# {plural(found.lacking_level, 'line')} without a level: if that means one, name it "
            "by default_level in line_format"
        )
    if len(found.offsets) > 1 and not (rule.by_offset or rule.from_record):
        rows.append(
            f"# times have different offsets ({', '.join(found.offsets[:_NAMED])}), which are not "
            'read; time = "instant" shows all of them in time_zone'
        )
    if found.continuations:
        rows.append(
            f'# continuation_lines = "unmatched"  # for {plural(found.continuations, "line")}'
        )
    if found.pipeline is not None:
        rows.append("# its other keys stay as they are")
    return "\n".join([f"[pipelines.{found.pipeline or 'NAME'}]", *rows])


def levels_to_configure(line_format: LineFormat, seen: Iterable[str]) -> list[str] | None:
    """The levels to configure; None where the default does, empty where lines have no level.

    Those that mean an error. Where neither the sample nor the format has one that is known to,
    all of the sample.
    """
    if not line_format.has_level:
        return []
    words = [level for level in seen if not any(map(str.isspace, level))]
    known = line_format.levels or tuple(dict.fromkeys(line_format.level_names.values()))
    for levels in (words, known):
        if errors := [level for level in levels if _is_error(level)]:
            return None if errors == ["ERROR"] else errors
    try:
        line_format.printed_levels(["ERROR"])
    except ValueError:
        return words
    return None


def is_known(line_format: LineFormat, level: str) -> bool:
    """Whether a level is one of the format's, where it alone decides, or of a logging library."""
    own = line_format.levels or tuple(line_format.level_names.values())
    return level in own if own else level.casefold() in _KNOWN


def _is_error(level: str) -> bool:
    """Whether a level is that of errors, by any of the names that it has."""
    return level.casefold().startswith("err") or level in _ERRORS
