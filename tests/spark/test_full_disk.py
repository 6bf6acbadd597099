"""A disk without room for Spark's temporary files, in a namespace of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from tally_local.stack.stack import Stack
from tests.conftest import PROJECT

pytest.importorskip("pyspark")

pytestmark = pytest.mark.spark

SHUFFLE = """
import sys
from tally.config.servers import SparkSettings
from tally.errors import UnwritableError
from tally.spark.reading import read_errors
from tally.spark.session import spark_session
conf = {"spark.local.dir": sys.argv[1]}
settings = SparkSettings(master="local[1]", jars_dir=sys.argv[2], conf=conf)
with spark_session(settings, "a full disk") as session:
    rows = session.range(0, 2_000_000, numPartitions=2).selectExpr("uuid() as u").repartition(2)
    try:
        with read_errors([]):
            rows.write.format("noop").mode("overwrite").save()
    except UnwritableError as error:
        print("said:", error, error.next_step)
"""


def test_a_full_disk_under_spark_is_an_error_for_an_operator(tmp_path: Path) -> None:
    """Another try would end the same way; the setting names another folder."""
    downloads = Stack(project=PROJECT)
    downloads.install()
    small = tmp_path / "small"
    small.mkdir()
    mounted = f"mount -t tmpfs -o size=2m none '{small}'"
    inside = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    if subprocess.run([*inside, mounted], capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a small disk")
    script = tmp_path / "shuffle.py"
    script.write_text(SHUFFLE, encoding="utf-8")
    command = f"{mounted} && exec '{sys.executable}' '{script}' '{small}' '{downloads.jars_dir}'"
    done = subprocess.run([*inside, command], capture_output=True, text=True, check=False)
    assert "said: [unwritable] Spark cannot write temporary files" in done.stdout, done.stderr
    assert "No space left on device" in done.stdout
    assert "spark.local.dir" in done.stdout
