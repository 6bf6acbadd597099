"""Options of Spark's Kafka reader: Tally's own, and those that a pipeline may set."""

import re
from collections.abc import Mapping

# What Spark's consumers ask of Kafka; ``[pipelines.<name>.reader]`` overrides it key by key.
# max.wait decides: with Kafka's own 500 ms every read up to a partition's end waits half a second
# per partition (docs/performance.md has the measurement).
READER_DEFAULTS: Mapping[str, str] = {
    "kafka.fetch.max.wait.ms": "10",
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": "8388608",
    "kafka.check.crcs": "false",
}

# Set by Tally from the plan; changing them would change what is read.
READER_FORBIDDEN = frozenset(
    {
        "assign",
        "subscribe",
        "subscribepattern",
        "startingoffsets",
        "endingoffsets",
        "startingtimestamp",
        "endingtimestamp",
        "startingoffsetsbytimestamp",
        "endingoffsetsbytimestamp",
        "failondataloss",
        "includeheaders",
        "kafka.bootstrap.servers",
        "kafka.isolation.level",
        "kafka.group.id",
        "kafka.auto.offset.reset",
        "kafka.enable.auto.commit",
    }
)

# Divide a partition between Spark tasks; in small letters.
DIVIDING = frozenset({"minpartitions", "maxrecordsperpartition"})


# These would show in a representation of the settings and in Spark's plans.
READER_SECRETS = re.compile(r"jaas|password|secret", re.IGNORECASE)


def check_reader_options(options: dict[str, str]) -> dict[str, str]:
    """The options; ValueError for those that Tally sets itself, and for secrets."""
    taken = sorted(key for key in options if key.lower() in READER_FORBIDDEN)
    if taken:
        raise ValueError(f"Tally sets {', '.join(taken)} itself, from the plan")
    if secret := sorted(key for key in options if READER_SECRETS.search(key)):
        raise ValueError(
            f"{', '.join(secret)}: secrets belong into [kafka], where nothing shows them"
        )
    return options
