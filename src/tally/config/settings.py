"""The whole configuration.

A pipeline whose keys are wrong is disabled by itself: the others are there, and whoever asks for it
is told its mistakes.
"""

from collections.abc import Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final

from pydantic import ModelWrapValidatorHandler, PrivateAttr, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from tally.config.checks import line_mistakes, mistakes
from tally.config.complaints import CORRECT_THEM, complaints, in_lines
from tally.config.names import (
    DAG_SUFFIXES,
    PREFIX,
    check_pipeline_name,
    check_result_table,
    check_rows_view,
    tables_beside,
)
from tally.config.pipeline import Pipeline, PipelineSettings
from tally.config.servers import (
    ConsoleSettings,
    KafkaSettings,
    MySQLSettings,
    ResultsSettings,
    SparkSettings,
)
from tally.config.sources import Environment, environment
from tally.errors import ConfigError, UnknownPipelineError
from tally.formatting import close_to

# pydantic-settings calls a class method for the sources, so a load passes its files in a variable.
files_of_this_load: ContextVar[tuple[Path, ...]] = ContextVar("files_of_this_load", default=())


class InvalidSettingsError(Exception):
    """Keys outside of the pipelines are wrong; a sentence per mistake, pipelines' included."""

    def __init__(self, sentences: list[str]) -> None:
        super().__init__("; ".join(sentences))
        self.sentences = sentences


class Settings(BaseSettings):
    """The whole configuration."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
    )

    kafka: KafkaSettings = KafkaSettings()
    mysql: MySQLSettings = MySQLSettings()
    results: ResultsSettings | None = None
    """Where lines are kept; in the ledger's database when the section is not there."""
    spark: SparkSettings = SparkSettings()
    console: ConsoleSettings = ConsoleSettings()
    """What the pages in Airflow need besides."""
    pipelines: dict[str, PipelineSettings] = {}
    """The pipelines, by name."""

    _disabled: dict[str, tuple[str, ...]] = PrivateAttr(default_factory=dict)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The caller's values override the environment, which overrides the files."""
        files = TomlConfigSettingsSource(
            settings_cls, toml_file=list(files_of_this_load.get()), deep_merge=True
        )
        return init_settings, Environment(settings_cls), files

    @model_validator(mode="wrap")
    @classmethod
    def _each_pipeline_by_itself(
        cls, values: Any, handler: ModelWrapValidatorHandler["Settings"]
    ) -> "Settings":
        given = values.get("pipelines") if isinstance(values, dict) else None
        if not isinstance(given, Mapping):
            return handler(values)
        known: dict[str, tuple[PipelineSettings, set[str]]] = {}
        disabled: dict[str, tuple[str, ...]] = {}
        for name, keys in given.items():
            try:
                known[name] = PipelineSettings.model_validate(keys), set()
            except ValidationError as error:
                prefix = f"pipelines.{name}"
                told = complaints(error, PipelineSettings, environment(cls), prefix)
                disabled[name] = tuple(told)
                known |= _without_wrong_keys(name, keys, error)
        valid = {name: pipeline for name, (pipeline, wrong) in known.items() if not wrong}
        try:
            settings = handler({**values, "pipelines": valid})
        except ValidationError as error:
            told = complaints(error, cls, environment(cls))
            for name, (pipeline, wrong) in known.items():
                told += [] if wrong else _mistaken_names(name, pipeline, valid)
                told += line_mistakes(name, pipeline, wrong)
            for sentences in disabled.values():
                told += sentences
            raise InvalidSettingsError(told) from None
        for name, (pipeline, wrong) in known.items():
            told = [] if wrong else _mistaken_names(name, pipeline, settings.pipelines)
            told += mistakes(name, pipeline, settings.mysql, settings.kafka, wrong)
            if told:
                disabled[name] = (*disabled.get(name, ()), *told)
                settings.pipelines.pop(name, None)
        settings._disabled = disabled  # noqa: SLF001 - its own
        return settings

    @classmethod
    def defaults(cls) -> "Settings":
        """The defaults alone, without pipelines; no file and no variable is read."""
        return cls.model_construct(
            kafka=KafkaSettings(),
            mysql=MySQLSettings(),
            results=None,
            spark=SparkSettings(),
            pipelines={},
        )

    @property
    def disabled(self) -> Mapping[str, tuple[str, ...]]:
        """Pipelines that are wrong, by name: a sentence per mistake."""
        return self._disabled

    @property
    def names(self) -> list[str]:
        """All configured pipelines, sorted; the wrong ones too."""
        return sorted({*self.pipelines, *self._disabled})

    def check(self, name: str) -> None:
        """Raise unless a pipeline of that name is configured, and right.

        Raises:
            UnknownPipelineError: No pipeline of that name is configured.
            ConfigError: It is, but wrong; each mistake is named.
        """
        if name in self._disabled:
            raise ConfigError(
                in_lines(f"pipeline {name} is not valid", self._disabled[name]),
                next_step=CORRECT_THEM,
            )
        if name not in self.pipelines:
            raise UnknownPipelineError(
                f"no pipeline {name!r} is configured; there are: {', '.join(self.names)}"
                f"{close_to(name, self.names)}",
                next_step="name one of these, or add it to tally.toml",
            )

    def pipeline(self, name: str) -> Pipeline:
        """The pipeline of that name.

        Raises:
            UnknownPipelineError, ConfigError: As :meth:`Settings.check`.
        """
        self.check(name)
        return _named(name, self.pipelines[name])


def _without_wrong_keys(
    name: str, keys: object, error: ValidationError
) -> dict[str, tuple[PipelineSettings, set[str]]]:
    """A pipeline without its wrong keys, and these; empty when it is not known which they are."""
    wrong = {str(item["loc"][0]) for item in error.errors() if item["loc"]}
    if not isinstance(keys, Mapping) or not wrong:
        return {}
    rest = {key: value for key, value in keys.items() if key not in wrong}
    try:
        return {name: (PipelineSettings.model_validate({"topics": ["unknown"], **rest}), wrong)}
    except ValidationError:  # keys that are wrong together
        return {}


def _named(name: str, settings: PipelineSettings) -> Pipeline:
    keys = {key: getattr(settings, key) for key in PipelineSettings.model_fields}
    return Pipeline(name=name, **keys)


def _views(pipeline: Pipeline) -> set[str]:
    """The names by which readers know a pipeline's result and its lines."""
    return {pipeline.table, *filter(None, [pipeline.rows_view])}


def _shared(one: Pipeline, other: Pipeline) -> str:
    """What two pipelines have in common and may not; '' for nothing."""
    if one.table == other.table:
        return f"result_table {one.table}"
    if one.procedure is not None and one.procedure == other.procedure:
        return f"row_procedure {one.procedure}, which writes the lines of one"
    if one.files_url and other.files_url:
        outer, inner = sorted([f"{one.files_url}/", f"{other.files_url}/"], key=len)
        if inner.startswith(outer):
            return f"folder {outer.rstrip('/')} in files_url"
    same = _views(one) & _views(other)
    return f"table or view {min(same)}" if same else ""


def _mistaken_names(
    name: str, settings: PipelineSettings, pipelines: Mapping[str, PipelineSettings]
) -> list[str]:
    """What is wrong with the names of a pipeline and of its table, beside those before it."""
    pipeline = _named(name, settings)
    try:
        check_pipeline_name(name)
        check_result_table(pipeline.table)
        if pipeline.has_own_tables:
            tables_beside(pipeline.table)  # whose names must not be too long
        if pipeline.rows_view is not None:
            check_rows_view(pipeline.rows_view)
    except ValueError as error:
        return [f"pipelines.{name}: {error}"]
    for suffix, done in DAG_SUFFIXES.items():
        if name.removesuffix(suffix) in {*pipelines} - {name}:
            other = name.removesuffix(suffix)
            taken = f"Airflow's DAG of this name is the one in which {other} is {done}"
            return [f"pipelines.{name}: {taken}: give the pipeline another name"]
    for other, keys in pipelines.items():
        if other == name:
            break
        taken_by = _named(other, keys)
        if shared := _shared(taken_by, pipeline):
            return [f"pipelines {other} and {name} have the same {shared}"]
    return []


SECTIONS: Final = tuple(name for name in Settings.model_fields if name != "pipelines")
"""The sections besides the pipelines, in the order of docs/configuration.md."""
OF_DRIVERS: Final = tuple(name for name in SECTIONS if name != "console")
"""Those that a Spark driver needs."""
