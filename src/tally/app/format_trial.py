"""Trying line formats on a sample of a topic or a file, before one is configured."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tally.app.format_keys import FormatKeys, is_known, keys_to_paste, levels_to_configure
from tally.app.json_guess import json_guess, json_keys
from tally.app.option_guess import accepting, option_guess
from tally.config.pipeline import TOPIC_NAME
from tally.context import Context, OpenSession
from tally.errors import ConfigError, UsageError
from tally.formatting import printable_bytes
from tally.lines.format import CATALOGUE, LineFormat, MalformedReason
from tally.lines.options import NO_OPTIONS
from tally.lines.parsing import parse_line_format
from tally.lines.pattern import LEVEL
from tally.lines.reading import begins_a_line, is_line, offset_of
from tally.lines.time_rule import (
    WALL_CLOCK,
    TimeRule,
    check_time_rule,
    continuation_reasons,
    offset_minutes,
    with_year,
)
from tally.model import OffsetRange, TopicPartition

if TYPE_CHECKING:  # Spark is heavy; the command's help does without
    from pyspark.sql import SparkSession

    from tally.spark.trial import ReadLine, SampleLine

EXAMPLES: Final = 3
LEVELS_SHOWN: Final = 20
LINE_CHARS: Final = 200
SAMPLE_BYTES: Final = 8 * 1024 * 1024
"""Bytes that a sample holds at most."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialRequest:
    """What to sample, and which format to try."""

    topic: str | None = None
    """A topic of Kafka."""
    file: Path | None = None
    """A file whose lines are taken for records."""
    line_format: str | Mapping[str, Any] | None = None
    """As in the configuration; None tries every ready-made format."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """With which options every ready-made format is tried."""
    time_rule: TimeRule = WALL_CLOCK
    """How the minute follows; a year that the format lacks is taken from the record."""
    pipeline: str | None = None
    """The pipeline whose keys are tried; None for one that is still to be configured."""
    limit: int = 1_000
    """About so many lines: the first of a file; of a topic the newest, as many of each
    partition."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TriedLine:
    """A line of the sample, and what is read in it."""

    line: str
    """Its text; unprintable characters are escaped, and a long line is cut."""
    reason: str | None
    """Why it is malformed; null when it is not."""
    minute: str | None
    """Its minute, ``YYYY-MM-DD HH:MM:00``; null when it is malformed."""
    fields: Mapping[str, str]
    """Its level and other fields, by name; empty when it is malformed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FormatTrial:
    """What one format makes of the sample."""

    line_format: str
    """The format's name; ``custom`` for a pattern of one's own."""
    understood: int
    """Lines that it understands."""
    malformed: Mapping[str, int]
    """The other lines, by the reason."""
    continuations: int
    """Those among them that ``continuation_lines = "unmatched"`` would leave out."""
    levels: Mapping[str, int]
    """Lines by level, the most frequent first."""
    known_levels: int | None
    """Lines whose level logging libraries or the format have; null without levels."""
    offsets: Mapping[str, int]
    """Lines that it understands, by their offset from UTC."""
    examples: tuple[TriedLine, ...]
    """Some lines that it understands."""
    failures: tuple[TriedLine, ...]
    """Some lines that are malformed, of each reason the first."""
    toml: str
    """The keys to paste into the configuration."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialView:
    """What the formats make of the sample."""

    source: str
    """The topic or the file."""
    lines: int
    """Lines in the sample."""
    json_keys: tuple[str, ...]
    """The keys of the first line that is a JSON object, with those of nested objects behind a
    dot."""
    json_guess: Mapping[str, str]
    """From the line with the clearest keys: ``time``, ``level``, ``time_format``."""
    options_guess: Mapping[str, int]
    """Lines by the option that they seem to need."""
    first: str
    """The first line; unprintable characters are escaped, and a long line is cut."""
    trials: tuple[FormatTrial, ...]
    """The formats that understand a line, the best first; the requested one in any case."""


def try_formats(ctx: Context, open_session: OpenSession, request: TrialRequest) -> TrialView:
    """Try a format, or all ready-made ones, on a sample.

    Args:
        ctx: What is needed from outside; Kafka is asked for a topic.
        open_session: Opens a Spark session; called when the request is known to be sound.
        request: What to try, and on what.

    Raises:
        UsageError: There is nothing to sample.
        ConfigError: The format, or how it would be configured, is not valid.
        TallyError: Kafka did not answer, or Spark could not read.
    """
    candidates = list(_candidates(request))
    options = candidates[0].line_format.options if candidates else NO_OPTIONS
    ranges = () if request.topic is None else _newest(ctx, request.topic, request.limit)
    in_file = () if request.file is None else _first_lines(request.file, request.limit)
    with open_session() as session:
        lines = _sampled(ctx, session, request, ranges, in_file)
        values = [line.value for line in lines if line.value]
        trials = [
            _tried(session, request, lines, candidate)
            for candidate in candidates
            # Spark decides, but needs a moment for each format.
            if request.line_format is not None
            or not candidate.line_format.pattern
            or any(is_line(candidate.line_format, value) for value in values)
        ]
    texts = [options.line_of(value).decode("utf-8", "replace") for value in values]
    if request.line_format is None:
        trials = [trial for trial in trials if trial.understood]
    trials.sort(key=_rank)
    is_understood = bool(trials) and trials[0].understood == len(lines)
    guesses = Counter(() if is_understood else (option_guess(v, options) for v in values))
    return TrialView(
        source=request.topic or str(request.file),
        lines=len(lines),
        json_keys=next(filter(None, map(json_keys, texts)), ()),
        first=_text(lines[0]),
        json_guess=max(map(json_guess, texts), key=len, default={}),
        options_guess={option: count for option, count in guesses.most_common() if option},
        trials=tuple(trials),
    )


def _rank(trial: FormatTrial) -> tuple[bool, int, bool]:
    """Where a format stands among others: a free level takes any word, an address or a zone."""
    known = trial.known_levels
    return known == 0, -(trial.understood if known is None else known), known is None


@dataclass(frozen=True, slots=True)
class _Candidate:
    configured: str | Mapping[str, Any]
    line_format: LineFormat
    rule: TimeRule


def _candidates(request: TrialRequest) -> Iterator[_Candidate]:
    if request.line_format is not None:
        found = parse_line_format(request.line_format, key="line_format")
        rule = with_year(found, request.time_rule)
        try:
            check_time_rule(found, rule)
        except ValueError as error:
            raise ConfigError(f"line_format: {found.name} {error}") from error
        yield _Candidate(request.line_format, found, rule)
        return
    for name in CATALOGUE:
        configured = {"name": name, **request.options} if request.options else name
        try:
            found = parse_line_format(configured, key="line_format")
            rule = with_year(found, request.time_rule)
            check_time_rule(found, rule)
        except (ConfigError, ValueError):
            continue  # not with this time rule, or these options
        yield _Candidate(configured, found, rule)


def _sampled(
    ctx: Context,
    session: "SparkSession",
    request: TrialRequest,
    ranges: Sequence[OffsetRange],
    in_file: Sequence[bytes],
) -> list["SampleLine"]:
    from tally.spark.trial import SampleLine, sample  # noqa: PLC0415 - Spark is heavy

    found: list[SampleLine] = []
    if request.file is not None:
        now = ctx.clock.now()
        found = [SampleLine(value=line, timestamp=now) for line in in_file]
    elif request.topic is not None and ranges:
        found = sample(session, ctx.settings.kafka, request.topic, ranges, bytes_max=SAMPLE_BYTES)
    if not found:
        raise UsageError(
            f"{request.topic or request.file} has no lines to try a format on; records of more "
            f"than {SAMPLE_BYTES:,} bytes are not tried",
            next_step="name a topic or a file that has some",
        )
    return found


def _first_lines(file: Path, limit: int) -> list[bytes]:
    """The first lines, as many as fit into a sample.

    Raises:
        UsageError: The file cannot be read, or is not one of lines.
    """
    found: list[bytes] = []
    room = SAMPLE_BYTES
    try:
        with file.open("rb") as lines:
            while len(found) < limit and (line := lines.readline(room)):
                room -= len(line)
                if not room and not line.endswith(b"\n"):  # cut
                    break
                found.append(line.rstrip(b"\r\n"))
    except OSError as error:
        raise UsageError(
            f"{file} cannot be read: {error.strerror}", next_step="name a file that you may read"
        ) from None
    if not room and not found:
        raise UsageError(
            f"{file}: no line ends in its first {SAMPLE_BYTES:,} bytes",
            next_step="name a file of text with a record on each line",
        )
    return found


def _newest(ctx: Context, topic: str, limit: int) -> list[OffsetRange]:
    """The last offsets of each partition, as many in each."""
    is_name = TOPIC_NAME.fullmatch(topic) is not None
    held = ctx.kafka.snapshot([topic]).topics.get(topic) if is_name else None
    if held is None:
        raise UsageError(
            f"Kafka has no topic {topic}, and there is no file of that name",
            next_step="name a topic or a file that exists",
        )
    filled = {n: p for n, p in held.partitions.items() if p.end > p.earliest}
    share = -(-limit // max(1, len(filled)))
    return [
        OffsetRange(
            partition=TopicPartition(topic=topic, partition=number),
            from_offset=max(p.earliest, p.end - share),
            until_offset=p.end,
        )
        for number, p in sorted(filled.items())
    ]


def _tried(
    session: "SparkSession",
    request: TrialRequest,
    lines: Sequence["SampleLine"],
    candidate: _Candidate,
) -> FormatTrial:
    from tally.spark.trial import try_format  # noqa: PLC0415 - Spark is heavy

    line_format, rule = candidate.line_format, candidate.rule
    read = try_format(session, lines, line_format, rule)
    names = line_format.fields
    tried = [_line(line, found, names) for line, found in zip(lines, read, strict=True)]
    sound = [line for line in tried if line.reason is None]
    reasons = Counter(line.reason for line in tried if line.reason)
    failed = {line.reason: line for line in reversed(tried) if line.reason is not None}
    levels = Counter(
        line_format.level_names.get(line.fields[LEVEL], line.fields[LEVEL])
        for line in sound
        if LEVEL in line.fields
    )
    known = sum(lines for level, lines in levels.items() if is_known(line_format, level))
    understood = (line.value or b"" for line, of in zip(lines, tried, strict=True) if not of.reason)
    stated = [offset for value in understood if (offset := offset_of(line_format, value))]
    malformed = [
        (line.value or b"", of.reason) for line, of in zip(lines, tried, strict=True) if of.reason
    ]
    no_line = continuation_reasons(line_format, rule)
    continuations = sum(
        reason in no_line and not begins_a_line(line_format, value) for value, reason in malformed
    )
    return FormatTrial(
        line_format=line_format.name,
        understood=len(sound),
        malformed=dict(reasons.most_common()),
        continuations=continuations,
        levels=dict(levels.most_common(LEVELS_SHOWN)),
        known_levels=known if line_format.has_level else None,
        offsets=dict(Counter(stated).most_common()),
        examples=tuple(sound[:EXAMPLES]),
        failures=tuple(failed.values()),
        toml=keys_to_paste(
            FormatKeys(
                pipeline=request.pipeline,
                topic=request.topic,
                line_format=accepting(candidate.configured, (value for value, _ in malformed)),
                time_rule=rule,
                levels=levels_to_configure(line_format, levels),
                seen=tuple(level for level, _ in levels.most_common()),
                has_known_level=bool(known) or not sound or not line_format.has_level,
                continuations=continuations if sound else 0,
                lacking_level=reasons[MalformedReason.NO_LEVEL],
                offsets=tuple(dict(sorted((offset_minutes(o), o) for o in stated)).values()),
            )
        ),
    )


def _text(line: "SampleLine") -> str:
    return printable_bytes(line.value)[:LINE_CHARS]


def _line(line: "SampleLine", found: "ReadLine", names: Sequence[str]) -> TriedLine:
    return TriedLine(
        line=_text(line),
        reason=found.reason,
        minute=found.minute,
        fields=dict(zip(names, found.fields, strict=True)) if found.reason is None else {},
    )
