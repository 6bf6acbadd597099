"""Files that travel with the package: those of Airflow and of monitoring, and writing them."""

import importlib.resources
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tally.errors import UsageError

JOB: Final = "jobs/count_errors.py"
"""The file that Airflow hands to spark-submit, beside the folders ``dags`` and ``plugins``."""
AIRFLOW_FILES: Final = ("dags/tally_pipelines.py", "plugins/tally_plugin.py", JOB)
"""DAG file, plugin, Spark entry point: at a checkout's root, or below ``files`` of the package."""

MONITORING_FILES: Final = ("monitoring/tally-alerts.yml", "monitoring/tally-dashboard.json")
"""Alert rules of Prometheus and the dashboard of Grafana, in the same places."""


def packaged(name: str, *, below: str = "") -> Path:
    """A file or a folder at the root of a checkout, and inside an installed package.

    Args:
        name: Its path from the checkout's root.
        below: The folder of the package that holds it.
    """
    inside = Path(str(importlib.resources.files("tally"))) / below / name
    return inside if inside.exists() else Path(__file__).parents[2] / name


def write_packaged(
    folder: Path, names: Sequence[str], *, replace: bool = False
) -> Mapping[Path, bool]:
    """Write files that travel with the package into a folder, below the folders of their names.

    Args:
        folder: Is created if it does not exist.
        names: Of :data:`AIRFLOW_FILES` or :data:`MONITORING_FILES`.
        replace: Whether files with another content are replaced.

    Returns:
        Whether each of them was written: it was not there already with the same content.

    Raises:
        UsageError: A file with another content is there; nothing was written.
    """
    wanted = {
        folder / name: packaged(name, below="files").read_text(encoding="utf-8") for name in names
    }
    there = {path: path.read_text(encoding="utf-8") for path in wanted if path.exists()}
    changed = [str(path) for path, text in there.items() if text != wanted[path]]
    if changed and not replace:
        raise UsageError(
            f"{', '.join(changed)}: there already, with another content",
            next_step="look at the differences, then add --replace, or name another folder",
        )
    written = {path: there.get(path) != text for path, text in wanted.items()}
    for path in (path for path, is_written in written.items() if is_written):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(wanted[path], encoding="utf-8")
    return written


def folder_of(file: str) -> Path:
    """The folder to which a DAG file or plugin was written, also if it is linked elsewhere.

    Args:
        file: The file, as Airflow names it: in the folder ``dags`` or ``plugins``, which may be
            links, or linked into another folder by itself.
    """
    named, real = Path(file).absolute().parents[1], Path(file).resolve().parents[1]
    return named if (named / JOB).is_file() else real
