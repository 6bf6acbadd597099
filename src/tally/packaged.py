"""Files that travel with the package, and where Airflow's got to."""

import importlib.resources
from pathlib import Path
from typing import Final

JOB: Final = "jobs/count_errors.py"
"""The file that Airflow hands to spark-submit, beside the folders ``dags`` and ``plugins``."""


def packaged(name: str, *, below: str = "") -> Path:
    """A file or a folder that lies at the root of a checkout, and inside of an installed package.

    Args:
        name: Its path from the checkout's root.
        below: The folder of the package that holds it.
    """
    inside = Path(str(importlib.resources.files("tally"))) / below / name
    return inside if inside.exists() else Path(__file__).parents[2] / name


def folder_of(file: str) -> Path:
    """The folder to which a DAG file or plugin was written, also if it is linked elsewhere.

    Args:
        file: The file, as Airflow names it: in the folder ``dags`` or ``plugins``, which may be
            links, or linked into another folder by itself.
    """
    named, real = Path(file).absolute().parents[1], Path(file).resolve().parents[1]
    return named if (named / JOB).is_file() else real
