"""Where the values of a configuration come from."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource

from tally.config.names import PREFIX

NOT_THERE: Final = object()


class Environment(EnvSettingsSource):
    """The environment variables as a source of settings.

    The value of a list or a table is JSON. Where it is not, it stays text: the validation then
    refuses that key alone, and names it.
    """

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        """The value that a text of JSON means; the text itself where it is not JSON."""
        try:
            return super().decode_complex_value(field_name, field, value)
        except ValueError:
            return value


def environment(model: type[BaseSettings]) -> Mapping[str, Any]:
    """What the environment variables set, in the shape of the file."""
    return Environment(model)()


def value_at(values: Any, path: Sequence[str]) -> Any:
    """The value at a path through tables and lists, ``NOT_THERE`` where there is none."""
    for key in path:
        if isinstance(values, Mapping) and key in values:
            values = values[key]
        elif isinstance(values, list) and key.isdecimal() and int(key) < len(values):
            values = values[int(key)]
        else:
            return NOT_THERE
    return values


def variable_of(path: Sequence[str]) -> str:
    """The variable that sets a key: its own, that of a table it is in, or of a key below it."""
    own = PREFIX + "__".join(path).upper()
    tables = [PREFIX + "__".join(path[:length]).upper() for length in range(len(path), 0, -1)]
    names = sorted(os.environ)
    below = [name for name in names if name.upper().startswith(f"{own}__")]
    found = [name for table in tables for name in names if name.upper() == table]
    return next(iter([*found, *below]), own)
