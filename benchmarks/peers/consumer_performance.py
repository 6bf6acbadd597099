"""Kafka's own ConsumerPerformance: how fast records can be fetched and thrown away."""

import subprocess
from pathlib import Path
from tempfile import NamedTemporaryFile

# What it gains by: no checksums, and fetches of as much as Tally's readers ask for.
BEST = {
    "check.crcs": "false",
    "max.poll.records": "10000",
    "max.partition.fetch.bytes": "8388608",
    "fetch.max.bytes": "134217728",
}
_TIMEOUT_MS = 60_000


def fetch(jars: Path, servers: str, topic: str, lines: int) -> float:
    """Fetch so many records; the seconds that it says it fetched for, its start excluded.

    Args:
        jars: The folder with Kafka's jars.
        servers: Kafka's addresses.
        topic: The topic.
        lines: Records to fetch.
    """
    with NamedTemporaryFile("w", suffix=".properties", encoding="utf-8") as file:
        file.write("".join(f"{key}={value}\n" for key, value in BEST.items()))
        file.flush()
        argv = [
            *("java", "-cp", f"{jars}/*", "org.apache.kafka.tools.ConsumerPerformance"),
            *("--bootstrap-server", servers),
            *("--topic", topic),
            *("--num-records", str(lines)),
            *("--command-config", file.name),
            *("--timeout", str(_TIMEOUT_MS)),
        ]
        told = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    names, values = ([c.strip() for c in line.split(",")] for line in told.splitlines()[-2:])
    found = dict(zip(names, values, strict=True))
    if int(found["data.consumed.in.nMsg"]) < lines:
        raise RuntimeError(f"ConsumerPerformance fetched {found['data.consumed.in.nMsg']} records")
    return float(found["fetch.time.ms"]) / 1000
