"""Checks of Java, Spark and its Kafka connector, or of a Spark Connect server."""

import importlib.util
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tally.app.doctor.diagnosis import Diagnosis, fail, ok, warn
from tally.config.servers import SparkSettings
from tally.config.settings import Settings
from tally.errors import JarsMissingError, StackError, TallyError
from tally.spark.java import java


def check_engine(settings: Settings) -> Iterator[Diagnosis]:
    """All checks of what counting needs: on this machine, or on a Spark Connect server."""
    if settings.spark.is_connect:
        yield from check_connect(settings.spark)
        return
    yield _check_java()
    pyspark, client = _installed("pyspark"), _installed("pyspark-client")
    if pyspark is None or importlib.util.find_spec("pyspark") is None:
        yield fail("spark.pyspark", "PySpark is not installed", "pip install 'kafka-tally[spark]'")
        return
    yield check_pyspark(pyspark, client)
    yield check_connector(settings.spark, pyspark)


def check_pyspark(pyspark: str, client: str | None) -> Diagnosis:
    """Whether PySpark and its Connect client, which share a folder, are one version."""
    if client is not None and client != pyspark:
        return fail(
            "spark.pyspark",
            f"pyspark {pyspark} and pyspark-client {client} overwrite each other's files",
            f"pip install --force-reinstall pyspark=={pyspark} pyspark-client=={pyspark}",
        )
    return ok("spark.pyspark", pyspark if client is None else f"{pyspark}, the client as well")


def check_connector(spark: SparkSettings, pyspark: str) -> Diagnosis:
    """Whether Spark's Kafka connector is there and made for this Spark."""
    from tally.spark.session import CONNECTOR_JAR, connector_jars  # noqa: PLC0415 - Spark is heavy

    if spark.jars_dir is None:
        return warn(
            "spark.connector",
            "spark.jars_dir is not set: the connector must be on Spark's own class path",
            "set spark.jars_dir, or ignore this if spark-submit gets the jars",
        )
    try:
        connector_jars(spark.jars_dir)
    except JarsMissingError as error:
        return fail("spark.connector", error.what, error.next_step)
    return compare_connector([jar.name for jar in spark.jars_dir.glob(CONNECTOR_JAR)], pyspark)


def compare_connector(jars: list[str], pyspark: str) -> Diagnosis:
    """Whether exactly one connector is there, of this Spark's version."""
    if len(jars) != 1:
        return fail(
            "spark.connector", f"several: {', '.join(sorted(jars))}", "leave one in spark.jars_dir"
        )
    of = Path(jars[0]).stem.rsplit("-", 1)[1]
    if of.split(".")[:2] != pyspark.split(".")[:2]:
        return fail(
            "spark.connector",
            f"{jars[0]} is not made for Spark {pyspark}",
            f"put the connector of Spark {pyspark} into spark.jars_dir",
        )
    return ok("spark.connector", jars[0])


def check_connect(spark: SparkSettings) -> Iterator[Diagnosis]:
    """Whether a Spark Connect server answers, and has the connector; this machine needs no Java."""
    client = _installed("pyspark-client") or _installed("pyspark")
    if client is None or importlib.util.find_spec("grpc") is None:
        yield fail(
            "spark.client", "pyspark-client is not installed", "pip install 'kafka-tally[connect]'"
        )
        return
    from tally.spark.session import spark_session  # noqa: PLC0415 - Spark is heavy

    try:
        with spark_session(spark, "tally doctor") as session:
            yield compare_server(session.version, client)
    except JarsMissingError as error:
        yield fail("spark.connector", error.what, error.next_step)
    except TallyError as error:
        yield fail("spark.server", error.what, error.next_step)
    else:
        yield ok("spark.connector", f"{spark.master} can load it")


def compare_server(server: str, client: str) -> Diagnosis:
    """Whether the server is at least as new as the client: Spark promises no more."""
    if _release(server) < _release(client):
        return warn(
            "spark.server",
            f"Spark {server} is older than the client {client}",
            f"pip install pyspark-client=={server}, or update the server",
        )
    return ok("spark.server", f"Spark {server}, the client {client}")


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])


def _check_java() -> Diagnosis:
    try:
        return ok("spark.java", java())
    except StackError as error:
        return fail("spark.java", error.what, error.next_step)


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
