"""The driver program, which ``jobs/count_errors.py`` runs."""

import logging
import signal
import sys
from functools import partial
from types import FrameType

import click

from tally.app.context import open_context
from tally.app.run import RanView, RunRequest, run
from tally.config.loading import load_settings
from tally.errors import TallyError
from tally.spark.session import spark_session

log = logging.getLogger("tally.job")


@click.command()
@click.option(
    "--batch", "batch_id", type=click.IntRange(min=1), required=True, help="Batch to run."
)
def main(batch_id: int) -> None:
    """Count one planned batch and commit it.

    If another replay has superseded segments that a replay's batch was to replace, the batch is
    replanned and then counted.

    The configuration comes from TALLY_CONFIG or ./tally.toml, secrets also from the environment
    or TALLY_SECRETS_FILE.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)  # it tells of each connection it closes
    try:
        settings = load_settings()
        if settings.spark.is_connect:
            signal.signal(signal.SIGTERM, _leave)
        session = partial(spark_session, settings.spark, f"tally {batch_id}")
        context = open_context(settings, open_session=session)
        run(context, RunRequest(batch_id=batch_id), on_batch=_say)
    except TallyError as error:
        click.echo(str(error), err=True)
        sys.exit(error.exit_code)


def _say(ran: RanView) -> None:
    outcome = ran.before if ran.committed_before else f"committed {ran.records} records"
    click.echo(f"batch {ran.batch_id} {outcome}")


def _leave(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    """Exit with clean-up: a Connect server continues to read for a client that just disappears."""
    sys.exit(128 + number)
