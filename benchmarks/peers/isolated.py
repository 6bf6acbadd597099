"""Peers in an environment of their own: tools whose packages do not belong beside Tally's."""

import json
import os
import subprocess
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from benchmarks.page import say
from benchmarks.servers import PROJECT
from tally.spark.jars import JarList

FOLDER = PROJECT / ".tally" / "peers"


@dataclass(frozen=True, kw_only=True, slots=True)
class Isolated:
    """A peer."""

    name: str
    """The name of its environment, of its table and in :mod:`benchmarks.peers.programs`."""
    title: str
    """What the table of results calls it."""
    requirements: Sequence[str]
    """Packages by exact version."""
    jars: JarList | None = None
    """Jars that its program needs, in the configuration of its name."""

    def install(self) -> None:
        """Make its environment, unless it is there."""
        home = FOLDER / self.name
        stamp, wanted = home / "installed", "\n".join(self.requirements)
        if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
            return
        say(f"installing {', '.join(self.requirements)}")
        venv.create(home, clear=True, with_pip=True)
        pip = [str(self._python), "-m", "pip", "install", "--quiet", *self.requirements]
        subprocess.run(pip, check=True)
        stamp.write_text(wanted, encoding="utf-8")

    def count(self, asked: Mapping[str, Any]) -> float:
        """Run its program; the seconds that it took from its own start to the commit.

        Args:
            asked: As :data:`benchmarks.peers.programs.Asked`, without the peer and its jars.
        """
        jars: list[str] = []
        if self.jars is not None:
            folder = self.jars.install(self.name, FOLDER / "downloads", say)
            jars = sorted(map(str, folder.iterdir()))
        done = subprocess.run(
            [self._python, "-m", "benchmarks.peers.programs", self.name],
            input=json.dumps({**asked, "peer": self.name, "jars": jars}),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            cwd=PROJECT,
            env={**os.environ, "PYTHONPATH": str(PROJECT)},
        )
        return float(json.loads(done.stdout.splitlines()[-1])["seconds"])

    @property
    def _python(self) -> Path:
        return FOLDER / self.name / "bin" / "python"


_MYSQL = ("PyMySQL==1.2.4", "cryptography==50.0.2")
ISOLATED = (
    Isolated(
        name="quix",
        title="Quix Streams",
        requirements=("quixstreams==3.28.1", *_MYSQL),
    ),
    Isolated(
        name="bytewax",
        title="Bytewax",
        requirements=("bytewax==0.21.1", "confluent-kafka==2.16.1", *_MYSQL),
    ),
    Isolated(
        name="pathway",
        title="Pathway",
        requirements=("pathway==0.33.0", *_MYSQL),
    ),
    Isolated(
        name="flink",
        title="PyFlink, a bounded query",
        requirements=("apache-flink==2.3.0", *_MYSQL),
        jars=JarList(
            resources.files("benchmarks.peers") / "flink", {"flink": "Flink's Kafka connector"}
        ),
    ),
)
