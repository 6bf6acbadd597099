"""MySQL's errors as Tally's, in one place; the driver's own text is kept."""

import re
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import pymysql
from pymysql.constants import CR, ER

from tally import errors
from tally.config.servers import key_of
from tally.errors import TallyError

_KEY: Final = re.compile(r"\bmysql\.(\w+)")
_LOGIN_REFUSED: Final = (ER.ACCESS_DENIED_ERROR, 1698)  # the latter without a password

# A server that refuses the client's certificate says so by an alert, which the closed connection
# may hide.
_ENDED_TLS: Final = re.compile(r"SSLEOFError|ALERT_(UNKNOWN_CA|BAD_CERTIFICATE|CERTIFICATE_\w+)\]")

# Our error and its next step for MySQL's error numbers; all others are StatementErrors. PyMySQL has
# no name for those that are numbers here.
_TRANSLATIONS: Final[Sequence[tuple[tuple[int, ...], type[TallyError], str]]] = (
    (
        (*_LOGIN_REFUSED, ER.DBACCESS_DENIED_ERROR),
        errors.AccessDeniedError,
        "check mysql.user, its password, its grants, and mysql.ssl_cert if it is to have one",
    ),
    (
        (
            ER.TABLEACCESS_DENIED_ERROR,
            ER.COLUMNACCESS_DENIED_ERROR,
            ER.SPECIFIC_ACCESS_DENIED_ERROR,
            ER.PROCACCESS_DENIED_ERROR,
        ),
        errors.AccessDeniedError,
        "grant mysql.user what it lacks: tally doctor lists every missing right",
    ),
    (
        (ER.NO_SUCH_TABLE, ER.BAD_FIELD_ERROR, ER.SP_DOES_NOT_EXIST),
        errors.SchemaError,
        "tally migrate; where the loading of a backup broke off, load it whole",
    ),
    (
        (ER.BAD_DB_ERROR,),
        errors.SchemaError,
        "create the database that mysql.database names, then: tally migrate",
    ),
    (
        (
            ER.LOCK_DEADLOCK,
            ER.LOCK_WAIT_TIMEOUT,
            ER.TABLE_DEF_CHANGED,  # a table that was rebuilt after the snapshot was taken
            3101,  # rolled back by the replication group
        ),
        errors.TransactionRetryError,
        "run it again",
    ),
    (
        # By an option of the server, in a transaction, and InnoDB's read-only mode.
        (ER.OPTION_PREVENTS_STATEMENT, 1792, 1836),
        errors.MySQLUnavailableError,
        "wait for the fail-over to end, or point mysql.host at the writable server",
    ),
    (
        (ER.DISK_FULL, ER.RECORD_FILE_FULL, ER.ERROR_ON_WRITE),
        errors.StatementError,
        "free disk space on the MySQL server, then run it again",
    ),
    (
        # The configuration keeps the values of all other numeric columns in range.
        (ER.WARN_DATA_OUT_OF_RANGE,),
        errors.CountOverflowError,
        "give the result table a wider column: docs/runbook.md, count-overflow",
    ),
    (
        (3024, 1969),  # the limit of a query's time in MySQL, of a statement's in MariaDB
        errors.StatementError,
        "ask for less at once: a shorter span, one batch or one partition",
    ),
    (
        (ER.NET_PACKET_TOO_LARGE,),
        errors.StatementError,
        "raise max_allowed_packet on the MySQL server, or lower dead_letter_max_bytes",
    ),
    (
        (
            CR.CR_CONN_HOST_ERROR,
            CR.CR_SERVER_GONE_ERROR,
            CR.CR_SERVER_LOST,
            ER.CON_COUNT_ERROR,
            ER.HOST_IS_BLOCKED,
            ER.SERVER_SHUTDOWN,
            ER.TOO_MANY_USER_CONNECTIONS,
            ER.ABORTING_CONNECTION,
            *range(ER.NET_READ_ERROR, ER.NET_WRITE_INTERRUPTED + 1),
            ER.QUERY_INTERRUPTED,
            ER.ERROR_DURING_COMMIT,
            1927,  # the connection was killed, in MariaDB
            4031,  # the client was idle for too long
        ),
        errors.MySQLUnavailableError,
        "",
    ),
)


class CommitUnansweredError(errors.OutcomeUnknownError):
    """The connection broke at COMMIT, so it may have been applied or not.

    A batch commit asks the ledger; for an operator's decision, the operator must check.
    """


@contextmanager
def our_errors(where: str = "", section: str = "mysql") -> Iterator[None]:
    """Raise MySQL's errors as Tally's.

    Args:
        where: ``user@host:port`` for the message; empty when the caller names it.
        section: The section of the server's settings.
    """
    try:
        yield
    except (pymysql.err.Error, OSError) as error:
        raise translate(error, where, section) from error


def translate(error: Exception, where: str = "", section: str = "mysql") -> TallyError:
    """MySQL's error as one of Tally's, with the driver's own text."""
    number = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    text = f"MySQL{f' ({where})' if where else ''}: {_driver_text(error)}"
    # PyMySQL gives every OSError of a connection one number, as if nothing had answered.
    if isinstance(getattr(error, "original_exception", error), ssl.SSLCertVerificationError):
        authority, host, tls = (key_of(section, key) for key in ("ssl_ca", "host", "tls"))
        return errors.ConfigError(
            text,
            next_step=f"let {authority} name a PEM file with the authority that signed the "
            f"certificate, and {host} a name in it, or renew it; {tls} says whether it is checked",
        )
    if _ENDED_TLS.search(text):
        own = key_of(section, "ssl_cert")
        return errors.MySQLUnavailableError(
            text,
            next_step=f"if the server is up, let {own} name a certificate of an authority that it "
            "trusts",
        )
    for numbers, ours, next_step in _TRANSLATIONS:
        if number in numbers:
            found = ours(text, next_step=_KEY.sub(lambda key: key_of(section, key[1]), next_step))
            if isinstance(found, errors.AccessDeniedError) and number in _LOGIN_REFUSED:
                found.credentials = (f"{section}.user", f"{section}.password")
            return found
    # Without a number the driver no longer knows the state of the connection.
    if not number or isinstance(error, OSError | pymysql.err.InterfaceError):
        return errors.MySQLUnavailableError(text)
    return errors.StatementError(text, next_step="see docs/runbook.md, mysql-refused")


def _driver_text(error: Exception) -> str:
    if len(error.args) > 1:
        return f"{error.args[1]} ({error.args[0]})"
    return str(error) or type(error).__name__
