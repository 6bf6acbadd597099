"""The Spark session and its access to Kafka: every setting of both, in one place.

The package pyspark-client has no ``SparkContext`` and no Py4J: neither is imported before it is
needed.
"""

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from tally import __version__
from tally.config.kafka_clients import java_options
from tally.config.pipeline import Pipeline
from tally.config.servers import KafkaSettings, SparkSettings
from tally.errors import JarsMissingError, PackageMissingError, SparkUnavailableError
from tally.spark import java
from tally.spark.errors import sentence_of, spark_errors
from tally.spark.jars import check_packages

log = logging.getLogger(__name__)

CONNECTOR_JAR: Final = "spark-sql-kafka-0-10_2.13-*.jar"
KAFKA_SOURCE: Final = "org.apache.spark.sql.kafka010.KafkaSourceProvider"

PYTHON_ARCHIVE: Final = "tally-{}.tar.gz"
"""Beside the connector's jars: the Python packages of a version, for executors elsewhere."""
_PYTHON_FOLDER: Final = "tally_python"
"""Where an executor unpacks them, below its working directory."""

_PYTHON: Final = "PYSPARK_PYTHON"

# How long an executor waits for the records of its range, in milliseconds: Spark's default of two
# minutes is longer than the interval of a batch.
_POLL_TIMEOUT_MS: Final = 30_000

SESSION_DEFAULTS: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
    # Otherwise PySpark looks up the caller's line at each call, and asks the JVM four times more:
    # half a second for the expressions of a pattern.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # The lines' own times stay text throughout; the zone is fixed so that nothing can shift them.
    "spark.sql.session.timeZone": "UTC",
    # A group is a minute of a partition: a few thousand rows, seldom a million. The driver collects
    # small parts: tally.spark.counting requests more parts when there may be many groups, and Spark
    # joins them up to this size.
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "2m",
    # A task's result goes straight to the driver: tally.spark.counting keeps it below half of this.
    # Spark's default of 1 MB sends a larger one by way of the block manager, where it can get lost
    # on a busy machine (TaskResultLost), which fails the batch.
    "spark.task.maxDirectResultSize": "64m",
    # Without kafka in this list Spark reads with its newer Kafka source, a third faster than the
    # older one, which makes an object of each row. Both read the same records.
    "spark.sql.sources.useV1SourceList": "avro,csv,json,orc,parquet,text",
    # What Python gets of Spark at once, where it gets records: with more rows than Spark's 10,000
    # each takes less time.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    # Kept lines may be long.
    "spark.sql.execution.arrow.maxBytesPerBatch": "32m",
    # Otherwise Spark joins frames of one partition each into one task; tally.spark.task_counting
    # needs one for each range.
    "spark.sql.unionOutputPartitioning": "false",
    # JSON lines: the last of duplicate keys wins. Otherwise such a record would be malformed.
    "spark.sql.variant.allowDuplicateKeys": "true",
    # Spark starts a thread for each stage until it has so many, 1,024 by default, and keeps each
    # for a minute: a busy server had a thousand of them, with their stacks.
    "spark.sql.shuffleExchange.maxThreadThreshold": "64",
    "spark.sql.resultQueryStage.maxThreadThreshold": "64",
    "spark.sql.redaction.options.regex": "(?i)url|jaas|password|secret",
    # Idle consumers keep their buffers and the records that they fetched last, megabytes for each
    # task. The next read never uses them, as each has a consumer group of its own. Kept for Spark's
    # five minutes, those of batch after batch fill the heap; those of 64 partitions fill it within
    # one batch, most of which went by in garbage collections.
    "spark.kafka.consumer.cache.capacity": "4",
    "spark.kafka.consumer.cache.timeout": "500ms",
    "spark.kafka.consumer.cache.evictorThreadRunInterval": "500ms",
    "spark.kafka.consumer.fetchedData.cache.timeout": "500ms",
    "spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval": "500ms",
}


def connector_jars(jars_dir: Path) -> list[Path]:
    """The jars of Spark's Kafka connector.

    Raises:
        JarsMissingError: The folder or the connector in it is missing.
    """
    if not list(jars_dir.glob(CONNECTOR_JAR)):
        raise JarsMissingError(
            f"Spark's Kafka connector ({CONNECTOR_JAR}) is not in spark.jars_dir = {jars_dir}",
            next_step="tally jars DIR fetches it, for spark.jars_dir; local stack: make setup",
        )
    return sorted(jars_dir.glob("*.jar"))


def session_options(settings: SparkSettings) -> dict[str, str]:
    """Spark's configuration for a session, the connector's jars included."""
    options = dict(SESSION_DEFAULTS)
    if settings.is_connect:  # the server was started with its own jars
        return options | settings.conf
    if is_local(settings):
        # Only this machine connects to the driver, so it listens on the loopback address alone.
        options |= {"spark.driver.host": java.LOOPBACK, "spark.driver.bindAddress": java.LOOPBACK}
    if settings.jars_dir is not None:
        jars = connector_jars(settings.jars_dir)
        if is_local(settings):
            # On the class path from the start: no jar is copied, and none is served to executors.
            options["spark.driver.extraClassPath"] = f"{settings.jars_dir}/*"
        else:
            options["spark.jars"] = ",".join(str(jar) for jar in jars)
            if packages := _python_archive(settings.jars_dir):
                options["spark.archives"] = f"{packages}#{_PYTHON_FOLDER}"
                options["spark.executorEnv.PYTHONPATH"] = f"./{_PYTHON_FOLDER}"
    return options | settings.conf


def _python_archive(jars_dir: Path) -> Path | None:
    """The Python packages for executors, if some were archived.

    Raises:
        PackageMissingError: Those of another version of Tally, which tasks would refuse.
    """
    packages = jars_dir / PYTHON_ARCHIVE.format(__version__)
    found = sorted(jars_dir.glob(PYTHON_ARCHIVE.format("*")))
    if found and packages not in found:
        raise PackageMissingError(
            f"spark.jars_dir = {jars_dir} has the Python packages of another Tally for Spark's "
            f"executors ({found[-1].name}), and this is {__version__}",
            next_step=f"tally jars {jars_dir} --python archives those of this one",
        )
    return packages if found else None


def is_local(settings: SparkSettings) -> bool:
    """Whether the executors are threads of the driver."""
    return settings.master.startswith("local")


def is_remote(session: SparkSession) -> bool:
    """Whether the session is one of Spark Connect: this process has no JVM."""
    return not hasattr(session, "sparkContext")


@contextmanager
def spark_session(
    settings: SparkSettings, name: str, *, needs_kafka: bool = True
) -> Iterator[SparkSession]:
    """A new Spark session, stopped at the end.

    Under spark-submit its master overrides the configured one.

    Args:
        settings: Master and configuration.
        name: Of the application.
        needs_kafka: Whether a Spark of this process's own must have the connector for Kafka.

    Raises:
        PackageMissingError: A Python package that Spark needs is not installed.
        JarsMissingError: Spark's Kafka connector cannot be found.
        SparkUnavailableError: The Spark Connect server does not answer, or Spark does not start.
        StackError: There is no Java, or it is too old.
        AccessDeniedError: The server refuses the token.
    """
    submitted = _submitted_master()
    if submitted is not None:
        settings = settings.model_copy(update={"master": submitted})
    check_packages(settings)
    if settings.is_connect:
        from tally.spark.connect import connect_session  # noqa: PLC0415 - brings gRPC and pandas

        with connect_session(settings, session_options(settings)) as remote:
            yield remote
        return
    builder = SparkSession.builder.appName(name).master(settings.master)
    options = session_options(settings)
    if submitted is None and is_local(settings):
        options = java.with_scratch(java.with_throughput(options), java.folder_of_process())
        options = java.with_archive(options, settings.jars_dir)
    for key, value in options.items():
        builder = builder.config(key, value)
    # PySpark's own default is whatever Python is first on the path.
    os.environ.setdefault(_PYTHON, options.get("spark.pyspark.python", sys.executable))
    session = _started(builder, settings.master)
    try:
        if needs_kafka:
            check_connector(session)
        yield session
    finally:
        _stop(session)


@contextmanager
def session_conf(session: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Options of a session inside the block; it is left as it was."""
    before = {key: session.conf.get(key) or "" for key in values}
    try:
        for key, value in values.items():
            session.conf.set(key, value)
        yield
    finally:
        for key, value in before.items():
            session.conf.set(key, value)


def _started(builder: SparkSession.Builder, master: str) -> SparkSession:
    try:
        return builder.getOrCreate()
    except spark_errors() as error:
        java.java()  # without one no retry helps
        raise SparkUnavailableError(
            f"Spark did not start on {master}: {sentence_of(str(error))}",
            next_step="tally doctor; Spark's own messages above may say more",
        ) from error


def _stop(session: SparkSession) -> None:
    """End the session; where its JVM has died there is nothing to end."""
    try:
        session.stop()
    except spark_errors() as error:
        if not _forget_dead_jvm():
            log.warning("spark_not_stopped", extra={"cause": sentence_of(str(error))})


def _forget_dead_jvm() -> bool:
    """Let PySpark start a new JVM where its own has ended; returns whether it has ended.

    PySpark keeps one gateway for the life of the process, and has no public way to replace it.
    """
    from pyspark import SparkContext  # noqa: PLC0415 - not in pyspark-client

    process = getattr(SparkContext._gateway, "proc", None)  # noqa: SLF001 - see above
    if process is None or process.poll() is None:
        return False
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - see above
    SparkContext._active_spark_context = None  # noqa: SLF001 - see above
    return True


def _submitted_master() -> str | None:
    """The master of spark-submit; None when Python started Spark itself."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return None
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415 - pyspark-client has neither

    SparkContext._ensure_initialized()  # noqa: SLF001 - without it a SparkConf knows no defaults
    return SparkConf().get("spark.master")


def check_connector(session: SparkSession) -> None:
    """Raise JarsMissingError unless the session can load Spark's Kafka connector."""
    jvm: Any = session._jvm  # noqa: SLF001 - PySpark's only way to ask the JVM
    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(KAFKA_SOURCE)
    except Exception as error:
        raise JarsMissingError(
            f"Spark cannot load its Kafka connector ({KAFKA_SOURCE})",
            next_step="tally jars DIR fetches it, for spark.jars_dir; or spark-submit --jars",
        ) from error


def reader_options(kafka: KafkaSettings, pipeline: Pipeline) -> dict[str, str]:
    """Options of Spark's Kafka reader, without the offsets; secrets included."""
    return {
        **{f"kafka.{key}": value for key, value in java_options(kafka).items()},
        "kafka.isolation.level": pipeline.isolation_level,
        "kafka.allow.auto.create.topics": "false",
        "failOnDataLoss": "true",
        "kafkaConsumer.pollTimeoutMs": str(_POLL_TIMEOUT_MS),
        **pipeline.reader_options,
    }
