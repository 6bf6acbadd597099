"""Names: of environment variables, of the database, of pipelines and their tables, of labels."""

import re
from collections.abc import Collection
from typing import Final

PREFIX: Final = "TALLY_"
"""What every environment variable of Tally starts with."""

MYSQL_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")

# Each of these needs no escaping between backticks, in a URL and after `mysqldump`. MySQL itself
# allows more, such as spaces and letters with accents, which one of the three would not.
DATABASE_NAME = re.compile(r"[A-Za-z0-9_$][A-Za-z0-9_$-]{0,63}")

# The server's own databases, in lower case.
SERVERS_DATABASES = frozenset({"information_schema", "mysql", "performance_schema", "sys"})

# Tally's own tables; a result table must not take one of their names.
RESERVED_TABLES = frozenset(
    {
        *("alert", "amendment", "batch", "completion", "dead_letter", "dead_letter_total"),
        *(
            "erasure",
            "folded_count",
            "ledger_identity",
            "lost_range",
            "partition_offset",
            "pipeline",
        ),
        *("progress", "replacement", "replay", "row_outbox", "segment", "segment_count"),
        "topic_incarnation",
    }
)


# A pipeline with labels, or one that measures bytes, has these besides its result table.
CONTRIBUTIONS_SUFFIX = "__segments"
FOLDED_SUFFIX = "__folded"
# And one that keeps the lines has these beside its view of them.
KEPT_SUFFIX = "__kept"
SETS_SUFFIX = "__sets"
_OWN_SUFFIXES = (CONTRIBUTIONS_SUFFIX, FOLDED_SUFFIX, KEPT_SUFFIX, SETS_SUFFIX)
ROWS_SUFFIX: Final = "_rows"
"""Of the view of the lines, after the name of the result table."""
EXPANDS: Final = ".expand"
"""How the name of a migration ends beside which the code before it keeps counting right."""
FILES_SUFFIX: Final = "_files"
"""Of the view of the files that hold the lines, after the name of the result table."""
MINUTES_SUFFIX: Final = "_minutes"
"""Of the view of the minutes, after the name of the result table."""
RIGHTS: Final = ("select", "insert", "update", "delete")
"""The rights on a table that counting needs."""
PROCEDURE_SUFFIX: Final = "_keep"
"""Of the stored procedure that writes the lines, after the name of their view."""
_OWN_TABLE_MAX = 64 - len(CONTRIBUTIONS_SUFFIX)
_ROWS_VIEW_MAX = 64 - len(KEPT_SUFFIX)


_FILE_SYSTEMS = ("file", "s3", "gs")
_FILES_URL = re.compile(r"(?:file:///|(?:s3|gs)://)[A-Za-z0-9._~+=-][A-Za-z0-9._~:/+=-]{0,500}")


DAG_SUFFIXES: Final = {"_replay": "replayed", "_losses": "asked about losses", "_audit": "audited"}
"""The suffixes to a pipeline's name in the names of its further DAGs, and what these do."""

LABELS_MAX: Final = 8
LABEL_CHARS_MAX: Final = 700
"""Code points of all labels together: MySQL's keys end at 3,072 bytes."""

LEVEL: Final = "level"
TEXT: Final = "text"
FILTER_STARS_MAX: Final = 100
"""Times that ``*`` may stand in one value of a filter: Java looks for the parts by recursion."""
RECORD_FIELDS: Final = ("topic", "partition", "key")
"""What Kafka knows of a record, whatever its line says."""

_LABEL: Final = re.compile(r"[A-Za-z@_][A-Za-z0-9@_-]*(?:\.[A-Za-z@_][A-Za-z0-9@_-]*)*")
_COLUMN: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_TAKEN_COLUMNS: Final = frozenset({"log_time", "segment_id", "pipeline"})


TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def check_topic(name: str) -> str:
    """The name; ValueError unless it may be a topic's."""
    if not TOPIC_NAME.fullmatch(name) or name in {".", ".."}:
        raise ValueError("a topic's name is letters, digits, dots, underscores and dashes")
    return name


def check_database_name(name: str) -> str:
    """The name; ValueError unless it may be the database's."""
    if not DATABASE_NAME.fullmatch(name):
        raise ValueError(
            "a database's name is 1 to 64 letters (a to z, in either case), digits, underscores, "
            "dollar signs and dashes, and does not begin with a dash"
        )
    if name.lower() in SERVERS_DATABASES:
        raise ValueError("this database is the server's own")
    return name


def tables_beside(result_table: str) -> tuple[str, str]:
    """The tables of contributions and of folded sums, for a pipeline that has its own.

    Raises:
        ValueError: The result table's name is too long for these names.
    """
    if len(result_table) > _OWN_TABLE_MAX:
        raise ValueError(
            f"result_table {result_table} has more than {_OWN_TABLE_MAX} characters, which a "
            'pipeline with labels or measure = "bytes" needs for the tables beside it'
        )
    return result_table + CONTRIBUTIONS_SUFFIX, result_table + FOLDED_SUFFIX


def check_rows_view(view: str) -> str:
    """The name; ValueError unless it may be that of the view of a pipeline's lines."""
    if len(view) > _ROWS_VIEW_MAX:
        raise ValueError(
            f"rows_table {view} has more than {_ROWS_VIEW_MAX} characters, which leaves no room "
            "for the names of the tables behind it"
        )
    return check_result_table(view)


def check_files_url(folder: str) -> str:
    """The folder of a pipeline's files as a URL; ValueError unless it may be one."""
    url = f"file://{folder}" if folder.startswith("/") else folder
    if not _FILES_URL.fullmatch(url):
        raise ValueError(
            "a folder is an absolute path, or a URL such as s3://BUCKET/FOLDER, of "
            f"{', '.join(_FILE_SYSTEMS)}: letters, digits and any of . _ ~ : / + = - (no user, "
            "password or options: these come from the environment)"
        )
    return url.rstrip("/")


def check_result_table(name: str) -> str:
    """The name; ValueError unless it may be that of a table or view of a pipeline."""
    if not MYSQL_NAME.fullmatch(name):
        raise ValueError("a table's name is lower-case letters, digits and underscores, at most 63")
    own = name.startswith(("_yoyo", "yoyo")) or name.endswith(_OWN_SUFFIXES)
    if name in RESERVED_TABLES or own:
        raise ValueError("one of Tally's own tables has this name, or may have it")
    return name


def mirror_group(pipeline: str) -> str:
    """The consumer group in which lag tools see a pipeline's offsets."""
    return f"tally-{pipeline}"


def label_column(label: str) -> str:
    """The column of a label: lower case, every other character an underscore.

    ``kubernetes.pod-name`` stands in ``kubernetes_pod_name``.
    """
    return re.sub(r"[^a-z0-9_]", "_", label.lower())


def check_label(label: str, sums: Collection[str]) -> str:
    """Raise ValueError unless a label has a name that can be one, and not that of a sum."""
    if not _LABEL.fullmatch(label):
        raise ValueError(
            "a label is the name of a field: letters, digits, _, - and @, a dot between nested ones"
        )
    column = label_column(label)
    if not _COLUMN.fullmatch(column) or column in {*_TAKEN_COLUMNS, *sums}:
        raise ValueError(f"a label's column cannot be called {column}")
    if label == TEXT:
        raise ValueError("the whole text is no label; name a group of the pattern or a field")
    return label


def check_labels(labels: list[str]) -> list[str]:
    """Raise ValueError unless labels can stand beside each other; returns them."""
    if len(labels) > LABELS_MAX:
        raise ValueError(f"{len(labels)} labels are more than {LABELS_MAX}")
    columns: dict[str, str] = {}
    for label in labels:
        column = label_column(label)
        if column in columns:
            raise ValueError(f"{columns[column]} and {label} would share the column {column}")
        columns[column] = label
    return labels
