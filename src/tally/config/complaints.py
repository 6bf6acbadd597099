"""What is said of values that are not allowed: the key, the value and what is allowed."""

from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_settings import SettingsError


def complaints(error: ValidationError | SettingsError) -> list[str]:
    """A sentence per wrong key, each once; secrets stay out."""
    if isinstance(error, SettingsError):
        return [str(error)]
    return list(dict.fromkeys(_complaint(item) for item in error.errors()))


def _complaint(item: Any) -> str:
    # Union members leave their own names in the location; a user knows only the file's keys.
    parts = [str(part) for part in item["loc"] if "[" not in str(part) and part != "datetime"]
    key = ".".join(parts) or "the whole file"
    message = item["msg"].removeprefix("Value error, ")
    if item["type"] in {"missing", "extra_forbidden"}:
        return f"{key}: {'is required' if item['type'] == 'missing' else 'is no known key'}"
    if "password" in key or isinstance(item["input"], dict | BaseModel):
        return f"{key}: {message}"
    return f"{key} = {item['input']!r}: {message}"
