"""``connect-server``: a Spark Connect server that counts for Tally, kept running."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import click

from tally.cli.app import App
from tally.cli.command import Command
from tally.cli.options import Number, pass_app
from tally.errors import ConfigError

PORT: Final = 15_002
MEMORY: Final = "1g"


@click.command(
    "connect-server",
    cls=Command,
    examples=[
        "tally connect-server",
        "tally connect-server --master spark://spark-master:7077 --memory 2g",
    ],
)
@click.option(
    "--master",
    default="local[*]",
    show_default=True,
    metavar="MASTER",
    help="Spark's master: where the server's tasks run.",
)
@click.option(
    "--port",
    type=Number("a port", max=65_535),
    default=PORT,
    show_default=True,
    help="The port on the loopback address.",
)
@click.option(
    "--memory",
    default=MEMORY,
    show_default=True,
    metavar="SIZE",
    help="The heap of the server, in Java's notation.",
)
@pass_app
def connect_server(app: App, master: str, port: int, memory: str) -> None:
    """Keep a Spark Connect server running, so that no batch starts a Spark.

    Batches of Airflow and of `tally run` count on it when `spark.master`, or the connection
    tally_spark, is sc://localhost:PORT. It is started again when its JVM has ended, has run out of
    memory, does not answer for a minute, or has a task that still runs a minute after it was
    cancelled. It listens on the loopback address and asks for `spark.connect_token`; for other
    machines put a proxy with TLS in front of it. `spark.jars_dir` and `spark.conf` apply to it.
    """
    from tally.config.loading import load_settings  # noqa: PLC0415 - --help does without
    from tally.spark.connect_server import server_command, server_environment  # noqa: PLC0415
    from tally.spark.keeper import keep  # noqa: PLC0415 - as above, --help does without

    settings = load_settings(app.config_path, needs_pipeline=False).spark
    token = settings.connect_token.get_secret_value()
    if not token:
        raise ConfigError(
            "spark.connect_token is missing: the server would count for everybody on this machine",
            next_step="set it in a private file or as TALLY_SPARK__CONNECT_TOKEN, for the clients "
            "as well",
        )
    with TemporaryDirectory(prefix="tally-connect-server-") as folder:
        command = server_command(
            settings.model_copy(update={"master": master}),
            port=port,
            scratch=Path(folder),
            memory=memory,
        )
        app.out.note(f"a Spark Connect server on {master} is kept at sc://localhost:{port}")
        keep(command, port, environment=server_environment(token))
