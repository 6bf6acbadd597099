"""The check of the console's user of MySQL, who must be able to read and to do nothing else."""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from tally.app.doctor.diagnosis import Diagnosis, fail, ok, skip
from tally.config.settings import Settings
from tally.context import console_context
from tally.errors import TallyError
from tally.ledger.schema import grants

CHECK: Final = "console.rights"

# What lets nobody change anything.
_HARMLESS: Final = frozenset({"USAGE", "SELECT", "SHOW VIEW", "SHOW DATABASES"})
_GRANT: Final = re.compile(
    r"GRANT (?P<rights>.+?)(?: ON (?P<where>.+?))? TO .+?(?P<further> WITH .*)?", re.IGNORECASE
)
# What an account may not do after all, and which of its roles it begins with.
_NO_RIGHT: Final = re.compile(r"REVOKE |SET DEFAULT ROLE ", re.IGNORECASE)
_COLUMNS: Final = re.compile(r"\s*\([^)]*\)")


def check_console(settings: Settings) -> Iterator[Diagnosis]:
    """Whether the console's user can read the ledger, and whether it could change something."""
    if settings.console.user is None:
        yield skip(CHECK, "[console] names no user; Airflow's connection tally_console may")
        return
    user = settings.console.user
    try:
        with console_context(settings).database.transaction(read_only=True) as tx:
            granted = grants(tx)
    except TallyError as error:
        yield fail(CHECK, error.what, error.next_step)
        return
    if further := sorted(set(changing(granted))):
        yield fail(
            CHECK,
            f"{user} may do more than read: {'; '.join(further)}",
            f"revoke all privileges, grant option from '{user}'@…, then: grant select on "
            f"{settings.mysql.database}.* to '{user}'@…",
        )
        return
    yield ok(CHECK, f"{user} can read, and change nothing")


def changing(grants: Iterable[str]) -> Iterator[str]:
    """What grants allow besides reading: ``INSERT on `tally`.*``, or a role.

    Args:
        grants: The answer to ``show grants``.
    """
    for grant in grants:
        found = _GRANT.fullmatch(grant)
        if _NO_RIGHT.match(grant):
            continue
        if found is None:
            yield grant
            continue
        rights = [right.strip() for right in _COLUMNS.sub("", found["rights"]).split(",")]
        if found["where"] is None:
            yield from (f"the role {role}" for role in rights)
            continue
        yield from (f"{r} on {found['where']}" for r in rights if r.upper() not in _HARMLESS)
        # Limits of an account let nobody change anything; GRANT OPTION and ADMIN OPTION do.
        if "OPTION" in (found["further"] or "").upper():
            yield f"{found['further'].strip().lower()} on {found['where']}"
