"""What the JVM of Spark's driver writes: warnings and errors, without those of every start."""

from pathlib import Path
from typing import Final

from tally.config.servers import SparkSettings

JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
LOGGING: Final = Path(__file__).with_name("log4j2.properties")

# Spark's launcher asks for a module of Java that is not final yet, and Java tells whom it concerns.
_INCUBATOR: Final = b"WARNING: Using incubator modules: jdk.incubator.vector"


def with_logging(options: str) -> str:
    """Java options with Tally's configuration of the log, unless they have one.

    Args:
        options: The Java options; may be empty.
    """
    if "log4j" in options:
        return options
    return f'{options} "-Dlog4j2.configurationFile={LOGGING.as_uri()}"'.strip()


def quiet(settings: SparkSettings, options: str) -> SparkSettings:
    """The settings with a log that suits a terminal, unless they configure logging themselves.

    Args:
        settings: How Spark is started.
        options: The Java options to which the logging option is added.
    """
    if "log4j" in options:
        return settings
    conf = {**settings.conf, JAVA_OPTIONS: with_logging(options)}
    return settings.model_copy(update={"conf": conf})


def is_noise(line: bytes) -> bool:
    """Whether a line of the JVM's stderr, which its log does not govern, says nothing."""
    return line.rstrip() == _INCUBATOR
