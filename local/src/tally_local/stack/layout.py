"""The paths of all files of a local stack."""

from dataclasses import dataclass
from pathlib import Path

FOLDER = ".tally"
"""The hidden folder in the checkout."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """The folders of one stack. Several stacks of one checkout share only the downloads."""

    project: Path
    """The checkout, absolute."""
    home: Path
    """What belongs to this stack alone, absolute."""

    @classmethod
    def of(cls, project: Path, home: Path | None = None) -> "Layout":
        """The layout of the stack of ``project``; ``home`` defaults to its hidden folder."""
        project = project.resolve()
        return cls(project=project, home=(project / FOLDER if home is None else home).resolve())

    @property
    def downloads(self) -> Path:
        """Jars and servers, the same for every stack of the checkout."""
        return self.project / FOLDER / "downloads"

    @property
    def airflow(self) -> Path:
        """Airflow's own folder, ``AIRFLOW_HOME``."""
        return self.home / "airflow"

    @property
    def run(self) -> Path:
        """One record per started part."""
        return self.home / "run"

    @property
    def logs(self) -> Path:
        """One log per part, and one of its previous start."""
        return self.home / "logs"

    @property
    def lock(self) -> Path:
        """Held while parts are started or stopped."""
        return self.home / "stack.lock"

    @property
    def ports(self) -> Path:
        """The chosen ports."""
        return self.home / "ports.json"

    @property
    def credentials(self) -> Path:
        """The generated passwords and keys."""
        return self.home / "credentials.json"

    @property
    def overlay(self) -> Path:
        """The settings of the stack's servers, which override ``tally.toml``."""
        return self.home / "stack.toml"
