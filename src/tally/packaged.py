"""Files that travel with the package."""

import importlib.resources
from pathlib import Path


def packaged(name: str, *, below: str = "") -> Path:
    """A file or a folder that lies at the root of a checkout, and inside of an installed package.

    Args:
        name: Its path from the checkout's root.
        below: The folder of the package that holds it.
    """
    inside = Path(str(importlib.resources.files("tally"))) / below / name
    return inside if inside.exists() else Path(__file__).parents[2] / name
