"""PyFlink: a bounded query over the topic, grouped by minute."""

from pathlib import Path

from pyflink.table import EnvironmentSettings, TableEnvironment

from benchmarks.peers.program import Asked, run

# Its JVM starts here, before the time is taken.
ENVIRONMENT = TableEnvironment.create(EnvironmentSettings.in_batch_mode())

TABLE = """
create table log (line string) with (
  'connector' = 'kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = '{servers}',
  'properties.check.crcs' = 'false', 'properties.max.poll.records' = '10000',
  'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset',
  'format' = 'raw'
)
"""
QUERY = """
select substring(line, 1, 16) as log_minute, count(*) as found from log
where substring(line, 21, 6) = 'ERROR ' group by substring(line, 1, 16)
"""


def count(asked: Asked) -> dict[str, int]:
    """ERROR lines by minute."""
    settings = ENVIRONMENT.get_config()
    settings.set("parallelism.default", "2")
    settings.set("pipeline.jars", ";".join(Path(jar).as_uri() for jar in asked["jars"]))
    ENVIRONMENT.execute_sql(TABLE.format(**asked))
    with ENVIRONMENT.execute_sql(QUERY).collect() as rows:
        return {row[0]: row[1] for row in rows}


if __name__ == "__main__":
    run(count)
