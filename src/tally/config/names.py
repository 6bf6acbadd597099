"""Names that become names in MySQL: pipelines and their result tables."""

import re

MYSQL_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")

# Tally's own tables; a result table must not take one of their names.
RESERVED_TABLES = frozenset(
    {
        "batch",
        "dead_letter",
        "folded_count",
        "lost_range",
        "partition_offset",
        "pipeline",
        "replacement",
        "replay",
        "segment",
        "segment_count",
        "topic_incarnation",
    }
)


def check_pipeline_name(name: str) -> str:
    """The name; ValueError unless it may be a pipeline's."""
    if not MYSQL_NAME.fullmatch(name):
        raise ValueError("a pipeline's name is lower-case letters, digits and underscores")
    return name


def check_result_table(name: str) -> str:
    """The name; ValueError unless it may be a result table's."""
    if not MYSQL_NAME.fullmatch(name):
        raise ValueError("a table's name is lower-case letters, digits and underscores, at most 63")
    if name in RESERVED_TABLES or name.startswith(("_yoyo", "yoyo")):
        raise ValueError("one of Tally's own tables has this name")
    return name
