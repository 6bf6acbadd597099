"""The whole configuration."""

from contextvars import ContextVar
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from tally.config.names import check_pipeline_name, check_result_table, tables_beside
from tally.config.pipeline import Pipeline, PipelineSettings
from tally.config.servers import KafkaSettings, MySQLSettings, SparkSettings
from tally.errors import UnknownPipelineError

# pydantic-settings calls a class method for the sources, so a load passes its files in a variable.
files_of_this_load: ContextVar[tuple[Path, ...]] = ContextVar("files_of_this_load", default=())


class Settings(BaseSettings):
    """The whole configuration."""

    model_config = SettingsConfigDict(
        env_prefix="TALLY_",
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
    )

    kafka: KafkaSettings = KafkaSettings()
    mysql: MySQLSettings = MySQLSettings()
    spark: SparkSettings = SparkSettings()
    pipelines: Annotated[
        dict[Annotated[str, AfterValidator(check_pipeline_name)], PipelineSettings],
        Field(min_length=1),
    ]
    """The pipelines, by name."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The caller's values override the environment, which overrides the files."""
        files = TomlConfigSettingsSource(
            settings_cls, toml_file=list(files_of_this_load.get()), deep_merge=True
        )
        return init_settings, env_settings, files

    @model_validator(mode="after")
    def _tables_are_distinct(self) -> "Settings":
        owners: dict[str, str] = {}
        for name in self.pipelines:
            pipeline = self.pipeline(name)
            table = pipeline.table
            check_result_table(table)
            if pipeline.has_own_tables:
                tables_beside(table)  # whose names must not be too long
            if table in owners:
                raise ValueError(
                    f"pipelines {owners[table]} and {name} have the same result_table {table}"
                )
            owners[table] = name
        return self

    def pipeline(self, name: str) -> Pipeline:
        """The pipeline of that name.

        Raises:
            UnknownPipelineError: No pipeline of that name is configured.
        """
        try:
            settings = self.pipelines[name]
        except KeyError:
            known = ", ".join(sorted(self.pipelines))
            raise UnknownPipelineError(
                f"no pipeline {name!r} is configured; there are: {known}",
                next_step="name one of these, or add it to tally.toml",
            ) from None
        return Pipeline(name=name, **{key: getattr(settings, key) for key in _pipeline_fields()})


def _pipeline_fields() -> list[str]:
    return list(PipelineSettings.model_fields)
