"""The base of every table of the configuration file."""

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict


class Section(BaseModel):
    """A table of the file: unknown keys are errors, values are fixed once read."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


def _option_value(value: object) -> object:
    """Numbers and booleans of TOML as the strings that Kafka and Spark take."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


Option = Annotated[str, BeforeValidator(_option_value)]
"""A value that Kafka or Spark takes as text."""
