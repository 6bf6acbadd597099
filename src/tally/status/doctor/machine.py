"""Checks of this machine: Python, the engine that counts, and Airflow where it is used."""

import importlib.util
import platform
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Final

from packaging.version import Version

from tally.config.servers import SparkSettings
from tally.config.settings import Settings
from tally.errors import JarsMissingError, TallyError
from tally.spark.java import java
from tally.status.doctor.diagnosis import Diagnosis, fail, judged, ok, refused, skip, warn
from tally.status.surroundings import CONNECTIONS, Surroundings

COMMAND: Final = "tally"
OWN: Final = frozenset({"kafka-tally", "kafka-tally-local"})
SPARK_TYPES: Final = ("spark", "spark_connect")


def check_python() -> Diagnosis:
    """Which Python this is; on one that is too old nothing of Tally is imported."""
    return ok("python.version", platform.python_version())


def check_distribution() -> Diagnosis:
    """Whether the package and the command ``tally`` are this distribution's alone.

    The project ``tally`` on PyPI, for one, installs files under the same name.
    """
    check = "python.distribution"
    commands = metadata.entry_points(group="console_scripts", name=COMMAND)
    names = {point.dist.name for point in commands if point.dist}
    names.update(metadata.packages_distributions().get(COMMAND, ()))
    if others := sorted(n for n in names if n.lower().replace("_", "-") not in OWN):
        return fail(
            check,
            f"{', '.join(others)} is installed too, and claims the name {COMMAND} in this Python",
            f"pip uninstall {' '.join(others)}, then "
            "pip install --force-reinstall --no-deps kafka-tally",
        )
    return ok(check, "kafka-tally alone has the name tally")


def check_engine(settings: Settings) -> Iterator[Diagnosis]:
    """All checks of what counting needs: on this machine, or on a Spark Connect server."""
    if settings.spark.is_connect:
        yield from check_connect(settings.spark)
        return
    try:
        yield ok("spark.java", java())
    except TallyError as error:
        yield refused("spark.java", error)
    pyspark, client = _installed("pyspark"), _installed("pyspark-client")
    if pyspark is None or importlib.util.find_spec("pyspark") is None:
        yield fail("spark.pyspark", "PySpark is not installed", "pip install 'kafka-tally[spark]'")
        return
    yield check_pyspark(pyspark, client)
    yield check_connector(settings.spark, pyspark)


def check_pyspark(pyspark: str, client: str | None) -> Diagnosis:
    """Whether PySpark and its Connect client, which share a folder, are one version."""
    if client is not None and client != pyspark:
        older = min(pyspark, client, key=Version)  # the newer one may have no counterpart yet
        return fail(
            "spark.pyspark",
            f"pyspark {pyspark} and pyspark-client {client} overwrite each other's files",
            f"pip install --force-reinstall --no-deps pyspark=={older} pyspark-client=={older}, "
            "then tally jars again",
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
        return refused("spark.connector", error)
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
        yield refused("spark.connector", error)
    except TallyError as error:
        yield refused("spark.server", error)
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


def _installed(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def check_airflow(answer: Surroundings, pipelines: Sequence[str]) -> Iterator[Diagnosis]:
    """Whether the DAGs are there, find their connections, and are started.

    Args:
        answer: What Airflow has answered.
        pipelines: The pipelines.
    """
    if answer.types is None:
        yield warn(
            "airflow.connections",
            "Airflow could not be asked for its connections",
            "look at: airflow connections list",
        )
        return
    for name in CONNECTIONS:
        yield check_connection(name, answer.types.get(name))
    if answer.paused is None:
        yield skip("airflow.scheduler", "Airflow's database cannot be reached from here")
        return
    yield judged(
        "airflow.scheduler",
        "" if answer.scheduler_alive else "none has sent a heartbeat lately: no DAG is started",
        "airflow scheduler (locally: tally up)",
        "it has sent a heartbeat lately",
        warn,
    )
    unknown = ", ".join(name for name in pipelines if name not in answer.paused)
    yield judged(
        "airflow.dags",
        unknown and f"Airflow knows no DAG {unknown}",
        "wait until Airflow has read the DAGs' file again, or see why it cannot: airflow dags "
        "list-import-errors (locally: tally airflow cli dags list-import-errors)",
        f"it knows {', '.join(pipelines)}",
        warn,
    )
    for name, why in answer.unusable.items():
        yield warn(
            "airflow.notifiers",
            f"alerts cannot be sent by {name}: {why}",
            "install its provider where Airflow runs, or correct notifiers of the pipeline",
        )


def no_airflow() -> Diagnosis:
    """Airflow was not asked."""
    return skip("airflow.connections", "no Airflow is configured here (AIRFLOW_HOME)")


def check_connection(name: str, conn_type: str | None) -> Diagnosis:
    """Whether a connection is there and of a type that Tally knows.

    Args:
        name: The connection's id.
        conn_type: Its type; None when the connection does not exist.
    """
    check, is_spark = f"airflow.{name}", name == "tally_spark"
    if conn_type is None and is_spark:
        return fail(
            check,
            "not set: Airflow would submit to YARN",
            "airflow connections add tally_spark --conn-type spark --conn-host 'local[*]'",
        )
    if conn_type is None:
        return ok(check, "not set: the configuration's own values apply")
    if is_spark and conn_type not in SPARK_TYPES:
        return fail(check, f"of type {conn_type}", f"make its type {' or '.join(SPARK_TYPES)}")
    return ok(check, f"of type {conn_type}")
