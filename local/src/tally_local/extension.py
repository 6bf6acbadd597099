"""What this package adds to the command line; loaded by ``tally --help``, so it imports little."""

from typing import Final

from tally.cli.extensions import Extension

EXTENSION: Final = Extension(
    sections={
        "Local stack": {
            "up": ("tally_local.cli", "Start the local stack: Kafka, MySQL and Airflow."),
            "down": ("tally_local.cli", "Stop the local stack; its data stays."),
            "demo": ("tally_local.cli", "Show the whole way of a line on the local stack."),
        },
    },
    unanswered="tally_local.hints:say_what_starts_them",
)
