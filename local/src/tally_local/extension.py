"""What this package adds to the command line; ``tally --help`` loads it, so it imports little."""

from typing import Final

from tally.cli.extensions import Extension

EXTENSION: Final = Extension(
    sections={
        "Local stack": {
            "up": ("tally_local.cli", "Start the local stack: Kafka, MySQL, Spark and Airflow."),
            "kafka": ("tally_local.cli", "Run one of Kafka's own command-line tools."),
            "down": ("tally_local.cli", "Stop the local stack; its data stays."),
            "demo": (
                "tally_local.cli",
                "Count generated lines on the local stack and check the result.",
            ),
        },
    },
    hints="tally_local.hints",
)
