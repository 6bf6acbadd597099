"""The installed Python packages for Spark; none of them is imported."""

import importlib.util
from pathlib import Path
from typing import Final

from tally.config.servers import SparkSettings
from tally.errors import PackageMissingError

_DRIVER: Final = ("pyspark", "py4j")
_CONNECT: Final = ("pyspark", "grpc", "pandas", "pyarrow")


def check_packages(settings: SparkSettings) -> None:
    """Raise unless this Python has the packages to start Spark, or to use a Connect server.

    Raises:
        PackageMissingError: A package is not installed; it says which, and how to install it.
    """
    extra, modules = ("connect", _CONNECT) if settings.is_connect else ("spark", _DRIVER)
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if missing:
        raise PackageMissingError(
            f"spark.master is {settings.master}, and this Python has no {', '.join(missing)}",
            next_step=f"pip install 'kafka-tally[{extra}]'",
        )


def check_arrow() -> None:
    """Raise unless this Python can work on records within a Spark task.

    Raises:
        PackageMissingError: It has no PyArrow.
    """
    if importlib.util.find_spec("pyarrow") is None:
        raise PackageMissingError(
            'delivery = "partition" needs PyArrow, which this Python does not have',
            next_step="pip install 'kafka-tally[connect]', here and in the executors' Python",
        )


def spark_home() -> Path:
    """The folder of the installed PySpark, with the programs that start its JVM.

    Raises:
        PackageMissingError: It is not installed, or only as a client of a Connect server.
    """
    spec = importlib.util.find_spec("pyspark")
    home = None if spec is None or spec.origin is None else Path(spec.origin).parent
    if home is None or not (home / "bin" / "spark-submit").is_file():
        raise PackageMissingError(
            "PySpark with its JVM is not installed in this Python",
            next_step="pip install 'kafka-tally[spark]'",
        )
    return home
