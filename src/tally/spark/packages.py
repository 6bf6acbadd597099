"""The check that the Python packages for Spark are installed; it imports none of them."""

import importlib.util
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
