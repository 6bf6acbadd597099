"""The jars of the local stack's servers."""

from importlib import resources
from typing import Final

from tally.spark.jars import JarList

SERVERS: Final = JarList(
    resources.files("tally_local.stack"),
    {"kafka": "Kafka broker (45 MB)", "mariadb": "MariaDB server (149 MB)"},
)
"""By configuration of ``ivy.xml``."""
