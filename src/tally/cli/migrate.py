"""``migrate``: create or update Tally's tables."""

import click

from tally.cli.app import App
from tally.cli.command import Command
from tally.cli.options import dry_run_option, pass_app
from tally.config.settings import CORRECT_THEM
from tally.errors import ConfigError
from tally.maintenance.migrate import migrate as apply_migrations
from tally.maintenance.migrate import missing


@click.command(cls=Command, examples=["tally migrate --dry-run", "tally migrate"])
@dry_run_option
@pass_app
def migrate(app: App, dry_run: bool) -> None:
    """Create or update Tally's tables in MySQL.

    Applies the numbered files of sql/ that the database does not have yet, and creates the result
    tables of the configured pipelines. It is idempotent: it can be run at any time, by several
    processes at once, and again after it was interrupted. Where a pipeline is configured wrong,
    exit code 2, after all is done for the others.
    """
    done = (missing if dry_run else apply_migrations)(app.context.database, app.settings)
    for name in done:
        app.out.line(f"{'would apply' if dry_run else 'applied'} {name}")
    if disabled := app.settings.disabled:
        raise ConfigError(
            f"nothing is prepared for what is disabled: {', '.join(sorted(disabled))}",
            next_step=CORRECT_THEM,
        )
    if not done:
        app.out.line("everything is there")
