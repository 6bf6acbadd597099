"""Trying line formats on a sample of a topic or a file, before one is configured."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tally.config.names import TOPIC_NAME
from tally.config.pipeline import Pipeline
from tally.context import Context, OpenSession
from tally.errors import ConfigError, UsageError
from tally.formatting import printable_bytes
from tally.kafka.client import Kafka
from tally.lines.parsing import parse_line_format
from tally.lines.pattern import LEVEL
from tally.lines.reading import Record, begins_a_line, is_line, level_of, offset_of
from tally.lines.time_rule import FROM_RECORD, check_time_rule, continuation_reasons
from tally.model import KafkaSnapshot, TopicPartition
from tally.set_up import format_advice as advice
from tally.set_up.format_advice import Configured, FormatTrial, TriedLine

if TYPE_CHECKING:  # Spark is heavy; the command's help does without
    from pyspark.sql import SparkSession

TIME_KEYS: Final = frozenset({"time", "assume_year", "time_zone"})
"""Keys of a pipeline that say how the minute of a line follows."""
EXAMPLES: Final = 3
LEVELS_SHOWN: Final = 20
LINE_CHARS: Final = 200
SAMPLE_BYTES: Final = 8 * 1024 * 1024
"""Bytes that a sample holds at most."""

PARTITIONS_ASKED: Final = 8
RECORDS_EACH: Final = 25
LEVELS_NAMED: Final = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialView:
    """What the formats make of the sample."""

    source: str
    """The topic or the file."""
    lines: int
    """Lines in the sample."""
    json_keys: tuple[str, ...]
    """The keys of the first JSON object among the lines; those of objects in it after a dot."""
    json_guess: Mapping[str, str]
    """From the line with the clearest keys: ``time``, ``level``, ``time_format``."""
    options_guess: Mapping[str, int]
    """Lines by the option that they seem to need."""
    first: str
    """The first line; unprintable characters are escaped, and a long line is cut."""
    trials: tuple[FormatTrial, ...]
    """The formats that understand a line, the best first; the requested one in any case."""


def try_formats(
    ctx: Context,
    open_session: OpenSession,
    source: str | Path,
    formats: Sequence[Configured],
    keys: Mapping[str, Any],
    *,
    pipeline: str | None,
    limit: int,
) -> TrialView:
    """Try a format, or several, on a sample.

    Args:
        ctx: What is needed from outside; Kafka is asked for a topic.
        open_session: Opens a Spark session; called when the request is known to be sound.
        source: A topic of Kafka, or a file whose lines are taken for records.
        formats: One that was asked for; or some, of which those are tried that go with the keys.
        keys: Those of :data:`TIME_KEYS` that are set; a year that a format lacks is taken from the
            record.
        pipeline: The pipeline whose keys are tried; None for one that is still to be configured.
        limit: About so many lines: the first of a file; of a topic the newest, as many of each
            partition.

    Raises:
        UsageError: There is nothing to sample.
        ConfigError: The format, or how it would be configured, is not valid.
        TallyError: Kafka did not answer, or Spark could not read.
    """
    is_asked_for = len(formats) == 1
    candidates: list[Pipeline] = []
    for configured in formats:
        with suppress(*() if is_asked_for else (ConfigError,)):
            candidates.append(_checked(Pipeline.model_construct(line_format=configured, **keys)))
    lines = _sample(ctx, source, limit)
    values = [line.value for line in lines if line.value]
    topic = source if isinstance(source, str) else None
    with open_session() as session:
        trials = [
            _tried(session, lines, candidate, topic=topic, pipeline=pipeline)
            for candidate in candidates
            # Spark decides, but needs a moment for each format.
            if is_asked_for
            or not candidate.format.pattern
            or any(is_line(candidate.format, value) for value in values)
        ]
    trials = sorted((t for t in trials if t.understood or is_asked_for), key=_rank)
    options = parse_line_format(formats[0], key="line_format").options
    texts = [options.line_of(value).decode("utf-8", "replace") for value in values]
    is_understood = bool(trials) and trials[0].understood == len(lines)
    guesses = Counter(() if is_understood else (advice.option_guess(v, options) for v in values))
    return TrialView(
        source=str(source),
        lines=len(lines),
        json_keys=next(filter(None, map(advice.json_keys, texts)), ()),
        first=_text(lines[0]),
        json_guess=max(map(advice.json_guess, texts), key=len, default={}),
        options_guess={option: count for option, count in guesses.most_common() if option},
        trials=tuple(trials),
    )


def newest_levels(kafka: Kafka, pipeline: Pipeline, held: KafkaSnapshot) -> Mapping[str, int]:
    """Levels of some of the newest lines, the most frequent first, and how many have each.

    Raises:
        TallyError: Kafka did not answer, or refused.
    """
    newest = islice(_newest(held, pipeline.topics, RECORDS_EACH).items(), PARTITIONS_ASKED)
    found = kafka.records_at(
        dict(newest), records_max=RECORDS_EACH, read_committed=pipeline.reads_committed
    )
    records = chain.from_iterable(found.values())
    levels = (level_of(pipeline.format, record.value or b"") for record in records)
    return dict(Counter(level for level in levels if level).most_common(LEVELS_NAMED))


def _checked(candidate: Pipeline) -> Pipeline:
    """A candidate whose format says how the minute follows, with the year that it lacks."""
    found = candidate.format
    if found.lacks_year and candidate.time != "record" and candidate.assume_year is None:
        candidate = candidate.model_copy(update={"assume_year": FROM_RECORD})
    try:
        check_time_rule(found, candidate.time_rule)
    except ValueError as error:
        raise ConfigError(f"line_format: {found.name} {error}") from error
    return candidate


def _sample(ctx: Context, source: str | Path, limit: int) -> list[Record]:
    if isinstance(source, Path):
        now = ctx.clock.now()
        found = [Record(value=line, written_at=now) for line in _first_lines(source, limit)]
    else:
        found = _newest_records(ctx.kafka, source, limit)
    if not found:
        raise UsageError(
            f"{source} has no lines to try a format on; records of more than {SAMPLE_BYTES:,} "
            "bytes are not tried",
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


def _newest_records(kafka: Kafka, topic: str, limit: int) -> list[Record]:
    """The newest records, as many of each partition; of large ones the newest."""
    is_name = TOPIC_NAME.fullmatch(topic) is not None
    held = kafka.snapshot([topic]) if is_name else None
    if held is None or topic not in held.topics:
        raise UsageError(
            f"Kafka has no topic {topic}, and there is no file of that name",
            next_step="name a topic or a file that exists",
        )
    filled = len(_newest(held, [topic], 1)) or 1
    share = -(-limit // filled)
    found = kafka.records_at(
        _newest(held, [topic], share), records_max=share, bytes_max=SAMPLE_BYTES // filled
    )
    return [record for where in sorted(found) for record in found[where]]


def _newest(held: KafkaSnapshot, topics: Iterable[str], each: int) -> dict[TopicPartition, int]:
    """Where the last offsets begin, as many of each partition that has some."""
    return {
        TopicPartition(topic=topic, partition=number): max(one.earliest, one.end - each)
        for topic in topics
        if topic in held.topics
        for number, one in held.topics[topic].partitions.items()
        if one.end > one.earliest
    }


def _tried(
    session: "SparkSession",
    lines: Sequence[Record],
    candidate: Pipeline,
    *,
    topic: str | None,
    pipeline: str | None,
) -> FormatTrial:
    from tally.spark.counting import try_format  # noqa: PLC0415 - Spark is heavy

    line_format, rule = candidate.format, candidate.time_rule
    read = try_format(session, lines, candidate)
    sound: list[tuple[bytes, TriedLine]] = []
    malformed: list[tuple[bytes, TriedLine]] = []
    for line, (reason, minute, fields) in zip(lines, read, strict=True):
        one = TriedLine(line=_text(line), reason=reason, minute=minute, fields=fields)
        (sound if reason is None else malformed).append((line.value or b"", one))
    printed = (one.fields[LEVEL] for _, one in sound if LEVEL in one.fields)
    levels = Counter(line_format.level_names.get(level, level) for level in printed)
    known = sum(count for level, count in levels.items() if advice.is_known(line_format, level))
    stated = (offset_of(line_format, value) for value, _ in sound)
    no_line = continuation_reasons(line_format, rule)
    trial = FormatTrial(
        line_format=line_format.name,
        understood=len(sound),
        malformed=dict(Counter(one.reason or "" for _, one in malformed).most_common()),
        continuations=sum(
            one.reason in no_line and not begins_a_line(line_format, value)
            for value, one in malformed
        ),
        levels=dict(levels.most_common()),
        known_levels=known if line_format.has_level else None,
        offsets=dict(Counter(filter(None, stated)).most_common()),
        examples=tuple(one for _, one in sound[:EXAMPLES]),
        failures=tuple({one.reason: one for _, one in reversed(malformed)}.values()),
        toml="",
    )
    to_count = advice.levels_to_configure(line_format, trial.levels)
    comments = advice.comments_on(trial, rule, to_count)
    accepted = advice.accepting(candidate.line_format, (value for value, _ in malformed))
    toml = advice.keys_to_paste(accepted, rule, to_count, comments, topic=topic, pipeline=pipeline)
    return replace(
        trial,
        levels=dict(islice(trial.levels.items(), LEVELS_SHOWN)),
        toml=advice.no_known_level(list(trial.levels)) if levels and not known else toml,
    )


def _rank(trial: FormatTrial) -> tuple[bool, int, bool]:
    """Where a format stands among others: a free level takes any word, an address or a zone."""
    known = trial.known_levels
    return known == 0, -(trial.understood if known is None else known), known is None


def _text(line: Record) -> str:
    return printable_bytes(line.value)[:LINE_CHARS]
