"""One Spark session for the tests of expressions; it needs no other server."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """The session that is there already, else a small one of our own."""
    from pyspark.sql import SparkSession  # noqa: PLC0415

    if active := SparkSession.getActiveSession():
        yield active
        return
    session = (
        SparkSession.builder.master("local[2]")
        .appName("tally-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
