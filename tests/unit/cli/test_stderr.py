"""Stderr of processes that a command starts."""

import subprocess
import sys

SCRIPT = """
import subprocess, sys
from tally.cli.ui.stderr import filtered_stderr
with filtered_stderr(lambda line: line == b"noise\\n") as copying:
    child = subprocess.Popen(
        [sys.executable, "-c", "import sys; input(); sys.stderr.write('noise\\\\nchild\\\\nend')"],
        stdin=subprocess.PIPE,
    )
    sys.stderr.write("noise\\ninside\\n")
sys.stderr.write("noise\\n")
child.communicate(b"\\n")
copying.join()
"""


def test_a_process_that_was_started_inside_stays_without_noise() -> None:
    """Everything else arrives, a last line without an end too; after the block all of it."""
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=60
    )
    assert sorted(ended.stderr.split()) == ["child", "end", "inside", "noise"]
