"""The configuration: one file, ``tally.toml``, validated once.

The first of these sources that has a value wins:

1. what the caller passes (Airflow connections, see :mod:`tally.airflow.connections`),
2. the environment: ``TALLY_`` and the key's path, its parts joined by two underscores
   (``TALLY_MYSQL__PASSWORD``, ``TALLY_PIPELINES__ERROR_LOG__LEVELS='["ERROR"]'``),
3. the file ``TALLY_SECRETS_FILE`` names: TOML of the same shape, readable by its owner alone,
4. ``.tally/stack.toml`` beside the configuration: the local stack's addresses and passwords,
5. ``tally.toml``, or the file ``TALLY_CONFIG`` names,
6. the defaults below.
"""

import os
import stat
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_settings import SettingsError

from tally.config.complaints import complaints
from tally.config.labels import RECORD_FIELDS, TEXT
from tally.config.pipeline import PipelineSettings
from tally.config.settings import Settings, files_of_this_load
from tally.errors import ConfigError
from tally.lines.format import LineFormat
from tally.lines.parsing import parse_line_format
from tally.lines.time_rule import check_time_rule

CONFIG_VARIABLE = "TALLY_CONFIG"
SECRETS_VARIABLE = "TALLY_SECRETS_FILE"
CONFIG_NAME = "tally.toml"
STACK_OVERLAY = Path(".tally") / "stack.toml"


def config_path() -> Path:
    """The configuration file: ``TALLY_CONFIG``, or ``tally.toml`` in the working directory."""
    return Path(os.environ.get(CONFIG_VARIABLE) or CONFIG_NAME).absolute()


def load_settings(
    path: Path | None = None, *, overrides: Mapping[str, Any] | None = None
) -> Settings:
    """Read and validate the configuration.

    Args:
        path: The file; :func:`config_path` when None.
        overrides: Values of the same shape, which override all other sources.

    Raises:
        ConfigError: A file is missing or not TOML, or a value is not allowed; every wrong key is
        named with its value (unless secret) and what is allowed.
    """
    base = path or config_path()
    files = _existing_files(base)
    for file in files:
        _check_toml(file)

    token = files_of_this_load.set(files)
    try:
        settings = Settings(**(overrides or {}))
        for name, pipeline in settings.pipelines.items():
            _check_line_format(name, pipeline)
            _check_patience(name, pipeline, settings)
    except (ValidationError, SettingsError) as error:
        raise _config_error(error, base) from None
    finally:
        files_of_this_load.reset(token)
    return settings


def _check_line_format(name: str, pipeline: PipelineSettings) -> None:
    line_format = parse_line_format(pipeline.line_format, key=f"pipelines.{name}.line_format")
    try:
        check_time_rule(line_format, pipeline.time_rule)
    except ValueError as error:
        raise ConfigError(
            f"pipelines.{name}.line_format: {line_format.name} {error}",
            next_step="docs/line-formats.md, The minute of a line, lists what there is",
        ) from None
    try:
        line_format.printed_levels(pipeline.levels)
    except ValueError as error:
        raise ConfigError(
            f"pipelines.{name}.levels = {pipeline.levels!r}: {error}",
            next_step="name levels of this line format (docs/line-formats.md lists them)"
            if line_format.has_level
            else "say where the level is, or set levels = [] to count lines at any level",
        ) from None
    _check_names(name, pipeline, line_format)
    _check_fields(name, "labels", pipeline.labels, line_format)
    _check_fields(name, "filter", [key for key in pipeline.filter if key != TEXT], line_format)


def _check_names(name: str, pipeline: PipelineSettings, line_format: LineFormat) -> None:
    """A field of the line with the name of one of the record's would be unreachable."""
    taken = (*RECORD_FIELDS, TEXT)
    kind, asked = "json", set(taken)
    if line_format.pattern:  # a group may have any name, as long as nothing is asked of it
        kind, asked = "pattern", {*pipeline.labels, *pipeline.filter}
    if hidden := [f for f in line_format.fields if f in taken and f in asked]:
        raise ConfigError(
            f"pipelines.{name}.line_format.{kind}: {', '.join(hidden)}: {', '.join(taken)} are not "
            "the line's fields but the record's",
            next_step="give the field another name",
        )


def _check_fields(name: str, key: str, fields: Sequence[str], line_format: LineFormat) -> None:
    """Labels and filters must name fields of the lines, or their values would silently be empty."""
    known = (*line_format.fields, *RECORD_FIELDS)
    if unknown := [f for f in fields if f not in RECORD_FIELDS and not line_format.has_field(f)]:
        others = ", or any other path" if line_format.is_json else ""
        raise ConfigError(
            f"pipelines.{name}.{key}: {', '.join(unknown)}: lines of the format "
            f"{line_format.name} have no such field; there are {', '.join(known)}{others}",
            next_step="name one of these, or use a line format that has such a field",
        )


def _check_patience(name: str, pipeline: PipelineSettings, settings: Settings) -> None:
    """The wait for a server's answer must be shorter than the batch's own timeout."""
    waits = {
        "mysql.statement_timeout_s": settings.mysql.statement_timeout_s,
        "mysql.connect_timeout_s": settings.mysql.connect_timeout_s,
        "kafka.request_timeout_s": settings.kafka.request_timeout_s,
    }
    for key, seconds in waits.items():
        if seconds >= pipeline.patience_s:
            raise ConfigError(
                f"pipelines.{name}.patience_s = {pipeline.patience_s} must be more than "
                f"{key} = {seconds:g}: a batch would be killed while it waits for an answer",
                next_step=f"raise patience_s or lower {key}",
            )


def _existing_files(base: Path) -> tuple[Path, ...]:
    if not base.is_file():
        raise ConfigError(
            f"there is no configuration file {base}",
            next_step=f"run Tally in the directory of {CONFIG_NAME}, or set {CONFIG_VARIABLE} to "
            "its path",
        )
    files = [base]
    if (stack := base.parent / STACK_OVERLAY).is_file():
        files.append(stack)
    if secrets := os.environ.get(SECRETS_VARIABLE):
        files.append(_checked_secrets(Path(secrets)))
    return tuple(files)


def _checked_secrets(path: Path) -> Path:
    if not path.is_file():
        raise ConfigError(
            f"{SECRETS_VARIABLE} names {path}, which does not exist",
            next_step=f"create it or unset {SECRETS_VARIABLE}",
        )
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(
            f"{path} holds secrets and others than its owner may read it",
            next_step=f"chmod 600 '{path}'",
        )
    return path


def _check_toml(path: Path) -> None:
    try:
        tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is no valid TOML: {error}", next_step="correct it") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None


def _config_error(error: ValidationError | SettingsError, base: Path) -> ConfigError:
    """One error that names each wrong key, its value and what is allowed, without secrets."""
    return ConfigError(
        f"{base} with its overrides is not valid: " + "; ".join(complaints(error, Settings)),
        next_step="correct the keys named (docs/configuration.md lists them all)",
    )
