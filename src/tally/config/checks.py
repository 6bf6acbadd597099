"""What must hold between the keys of a pipeline, and between them and those of the servers."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from tally.config.names import (
    DAG_SUFFIXES,
    FILTER_STARS_MAX,
    RECORD_FIELDS,
    TEXT,
    check_pipeline_name,
    check_result_table,
    check_rows_view,
    tables_beside,
)
from tally.config.pipeline import KEEPS_LINES, Pipeline
from tally.config.servers import DIVIDING, KafkaSettings, MySQLSettings
from tally.errors import ConfigError
from tally.formatting import close_to
from tally.lines.format import LineFormat
from tally.lines.parsing import parse_line_format
from tally.lines.time_rule import check_time_rule, continuation_reasons

_HOW_LINES_ARE_READ: Final = frozenset({"line_format", "time", "time_zone", "assume_year"})


def mistakes(
    pipeline: Pipeline,
    servers: tuple[MySQLSettings, KafkaSettings] | None,
    wrong: Collection[str],
) -> Iterator[str]:
    """A sentence for each combination of keys that cannot be meant.

    Args:
        pipeline: Its keys are each valid by themselves.
        servers: With their time-outs; None where their keys are wrong: then only what is asked of
            the lines is looked at.
        wrong: Keys that are wrong and have their defaults here; what follows from these is left
            out.
    """
    key = f"pipelines.{pipeline.name}"
    try:
        line_format = parse_line_format(pipeline.line_format, key=f"{key}.line_format")
    except ConfigError as error:
        yield error.what
    else:
        if _HOW_LINES_ARE_READ.isdisjoint(wrong):
            yield from _not_about(wrong, key, _about_lines(key, pipeline, line_format))
    if servers is None:
        return
    if "delivery" not in wrong:
        yield from _not_about(wrong, key, _about_delivery(key, pipeline))
    yield from _not_about(wrong, key, _about_patience(key, pipeline, *servers))


def _not_about(wrong: Collection[str], key: str, sentences: Iterator[str]) -> Iterator[str]:
    about = tuple(f"{key}.{name}." for name in wrong)
    return (s for s in sentences if not f"{s.split()[0].rstrip(':')}.".startswith(about))


def _about_lines(key: str, pipeline: Pipeline, line_format: LineFormat) -> Iterator[str]:
    try:
        check_time_rule(line_format, pipeline.time_rule)
    except ValueError as error:
        yield f"{key}.line_format: {line_format.name} {error}"
    try:
        line_format.printed_levels(pipeline.levels)
    except ValueError as error:
        yield f"{key}.levels = {pipeline.levels!r}: {error}"
    if pipeline.leaves_continuations and not continuation_reasons(line_format, pipeline.time_rule):
        yield (
            f'{key}.continuation_lines = "unmatched": in the fixed layout the time tells where a '
            'line begins, and time = "record" does not look at it: leave one of them out'
        )
    yield from _hidden_fields(key, pipeline, line_format)
    filters = {field: of for field, of in pipeline.filter.items() if field != TEXT}
    yield from _unknown_fields(f"{key}.labels", pipeline.labels, line_format)
    yield from _unknown_fields(f"{key}.row_key", pipeline.row_key, line_format)
    yield from _unknown_fields(f"{key}.filter", list(filters), line_format)
    for field, values in filters.items():
        for value in values:
            if (stars := len(re.findall(r"\*+", value))) > FILTER_STARS_MAX:
                yield (
                    f"{key}.filter.{field}: {value[:20]!r}… has * {stars} times, which is more "
                    f"than {FILTER_STARS_MAX}"
                )


def _hidden_fields(key: str, pipeline: Pipeline, line_format: LineFormat) -> Iterator[str]:
    """A field of the line with the name of one of the record's would be unreachable."""
    taken = (*RECORD_FIELDS, TEXT)
    kind, asked = "json", set(taken)
    if line_format.pattern:  # a group may have any name, as long as nothing is asked of it
        kind, asked = "pattern", {*pipeline.labels, *pipeline.row_key, *pipeline.filter}
    if hidden := [f for f in line_format.fields if f in taken and f in asked]:
        yield (
            f"{key}.line_format.{kind}: {', '.join(hidden)}: {', '.join(taken)} are not the line's "
            "fields but the record's: give the field another name"
        )


def _unknown_fields(key: str, fields: Sequence[str], line_format: LineFormat) -> Iterator[str]:
    """Labels and filters must name fields of the lines, or their values would silently be empty."""
    known = (*line_format.fields, *RECORD_FIELDS)
    if unknown := [f for f in fields if f not in RECORD_FIELDS and not line_format.has_field(f)]:
        others = ", or any other path" if line_format.is_json else ""
        yield (
            f"{key}: {', '.join(unknown)}: lines of the format {line_format.name} have no such "
            f"field{close_to(unknown[0], known)}; there are {', '.join(known)}{others}"
        )


_KEYS_OF: Final = {
    "rows_table": KEEPS_LINES,
    "row_key": ("rows", "procedure"),
    "row_procedure": ("procedure",),
    "files_url": ("files",),
}


def _about_delivery(key: str, pipeline: Pipeline) -> Iterator[str]:
    """Keys that another delivery has; and several tasks that would read one partition."""
    for name, deliveries in _KEYS_OF.items():
        if getattr(pipeline, name) and pipeline.delivery not in deliveries:
            known = " and ".join(f'"{delivery}"' for delivery in deliveries)
            yield (
                f"{key}.{name}: only delivery = {known} knows it: choose "
                f"{'it' if len(deliveries) == 1 else 'one of them'}, or leave {name} out"
            )
    if pipeline.delivery == "files" and pipeline.files_url is None:
        yield f'{key}.files_url is missing: delivery = "files" needs the folder of the files'
    if pipeline.delivery == "batch":
        return
    if dividing := [k for k in pipeline.reader if k.lower() in DIVIDING]:
        yield (
            f"{key}.reader.{dividing[0]}: it divides a partition between Spark tasks, and delivery "
            f'= "{pipeline.delivery}" commits each partition from the one task that reads it: '
            'leave the option out, or choose delivery = "batch"'
        )


def _about_patience(
    key: str, pipeline: Pipeline, mysql: MySQLSettings, kafka: KafkaSettings
) -> Iterator[str]:
    """The wait for a server's answer must be shorter than the batch's own timeout."""
    waits = {
        "mysql.statement_timeout_s": mysql.statement_timeout_s,
        "mysql.connect_timeout_s": mysql.connect_timeout_s,
        "kafka.request_timeout_s": kafka.request_timeout_s,
    }
    for wait, seconds in waits.items():
        if seconds >= pipeline.patience_s:
            yield (
                f"{key}.patience_s = {pipeline.patience_s} must be more than {wait} = "
                f"{seconds:g}: a batch would be killed while it waits for an answer"
            )


def mistaken_names(pipeline: Pipeline, pipelines: Mapping[str, Pipeline]) -> list[str]:
    """What is wrong with the names of a pipeline and of its table, beside those before it."""
    name = pipeline.name
    try:
        check_pipeline_name(name)
        check_result_table(pipeline.table)
        if pipeline.has_own_tables:
            tables_beside(pipeline.table)  # whose names must not be too long
        if pipeline.rows_view is not None:
            check_rows_view(pipeline.rows_view)
    except ValueError as error:
        return [f"pipelines.{name}: {error}"]
    for suffix, done in DAG_SUFFIXES.items():
        if (other := name.removesuffix(suffix)) != name and other in pipelines:
            taken = f"Airflow's DAG of this name is the one in which {other} is {done}"
            return [f"pipelines.{name}: {taken}: give the pipeline another name"]
    for other, of_other in pipelines.items():
        if other == name:
            break
        if shared := _shared(of_other, pipeline):
            return [f"pipelines {other} and {name} have the same {shared}"]
    return []


def _shared(one: Pipeline, other: Pipeline) -> str:
    """What two pipelines have in common and may not; '' for nothing."""
    if one.table == other.table:
        return f"result_table {one.table}"
    if one.procedure is not None and one.procedure == other.procedure:
        return f"row_procedure {one.procedure}, which writes the lines of one"
    if one.files_url and other.files_url:
        outer, inner = sorted([f"{one.files_url}/", f"{other.files_url}/"], key=len)
        if inner.startswith(outer):
            return f"folder {outer.rstrip('/')} in files_url"
    same = {one.table, one.rows_view} & {other.table, other.rows_view} - {None}
    return f"table or view {min(filter(None, same))}" if same else ""
