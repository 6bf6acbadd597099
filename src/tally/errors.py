"""Every error Tally raises on purpose.

::

    TallyError
    ├── UsageError              exit 2: the request or the configuration is wrong
    │   ├── ConfigError
    │   ├── UnknownPipelineError
    │   ├── UnknownBatchError
    │   ├── UnknownReplayError
    │   └── ReplayRefusedError
    │       └── PreviewOutdatedError
    ├── RetryableError          exit 3: something did not answer; try the same thing again
    │   ├── UnansweredError
    │   │   ├── KafkaUnavailableError
    │   │   └── MySQLUnavailableError
    │   ├── SparkUnavailableError
    │   ├── FilesUnavailableError
    │   ├── TransactionRetryError
    │   ├── ReadError
    │   └── CountTimeoutError
    ├── OutcomeUnknownError     exit 3: it was changed or not; try the same thing again
    ├── OperatorError           exit 4: an operator must decide or repair something
    │   ├── AccessDeniedError
    │   ├── SchemaError
    │   ├── StatementError
    │   ├── CountOverflowError
    │   ├── MissingTopicError
    │   ├── TopicIdError
    │   ├── BlockedError
    │   ├── StartInFutureError
    │   ├── DataLossError
    │   │   └── RecordsMissingError
    │   ├── MalformedFloodError
    │   ├── SeriesFloodError
    │   ├── RecordTimestampError
    │   ├── JarsMissingError
    │   ├── PackageMissingError
    │   ├── UnwritableError
    │   ├── SparkConnectionError
    │   └── StackError
    └── FencedError             exit 5: another process was first; this attempt must stop
        └── OvertakenError

Each carries what was tried, what went wrong and the command to run next; ``docs/runbook.md`` has
an entry for each ``code``.
"""

from typing import ClassVar

from tally.model import OffsetRange

EXIT_OK = 0
EXIT_FINDINGS = 1
EXIT_USAGE = 2
EXIT_RETRYABLE = 3
EXIT_OPERATOR = 4
EXIT_FENCED = 5
EXIT_BUG = 70


class TallyError(Exception):
    """Base of all of Tally's own errors.

    Args:
        what: The operation and the thing it concerned, with the cause, in one sentence.
        next_step: The command or the action that comes next; empty when there is none.
    """

    code: ClassVar[str]
    exit_code: ClassVar[int]

    def __init__(self, what: str, *, next_step: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.next_step = next_step

    def __str__(self) -> str:
        """One line for logs: the code, the sentence, the next step."""
        follow_up = f" Next: {self.next_step}" if self.next_step else ""
        return f"[{self.code}] {' '.join(self.what.split())}{follow_up}"


class UsageError(TallyError):
    """The request is wrong; nothing was changed."""

    code = "usage"
    exit_code = EXIT_USAGE


class ConfigError(UsageError):
    """A key of the configuration is missing, unknown or has a value that is not allowed."""

    code = "config-invalid"


class UnknownPipelineError(UsageError):
    """No pipeline of that name is configured."""

    code = "pipeline-unknown"


class UnknownBatchError(UsageError):
    """The ledger has no such batch."""

    code = "batch-unknown"


class UnknownReplayError(UsageError):
    """The ledger has no such replay."""

    code = "replay-unknown"


class ReplayRefusedError(UsageError):
    """What was asked for cannot be reprocessed; what was counted stays."""

    code = "replay-refused"


class PreviewOutdatedError(ReplayRefusedError):
    """A replay of a pipeline would no longer replace what its preview has shown."""

    code = "preview-outdated"

    def __init__(self, pipeline: str, *, next_step: str = "look at the preview again") -> None:
        super().__init__(
            f"pipeline {pipeline}: what would be read, replaced or counted is not what you saw any "
            "more",
            next_step=next_step,
        )


class RetryableError(TallyError):
    """A server did not answer in time; the same call may succeed later.

    The step that met it changed no count, no offset and no decision. What earlier steps of the same
    call have committed (batches of a replay, migrations) stays, and the same call resumes there.
    """

    code = "retryable"
    exit_code = EXIT_RETRYABLE


class UnansweredError(RetryableError):
    """A server did not answer, or stopped answering; without a cause, ``tally doctor`` is next."""

    code = "unanswered"

    def __init__(self, what: str, *, next_step: str = "") -> None:
        super().__init__(what, next_step=next_step or "tally doctor")
        self.is_unexplained = not next_step
        """Whether the cause of the missing answer is unknown."""


class KafkaUnavailableError(UnansweredError):
    """Kafka did not answer in time."""

    code = "kafka-unavailable"


class SparkUnavailableError(RetryableError):
    """The Spark Connect server did not answer, or the answer was not Spark Connect's."""

    code = "spark-unavailable"


class FilesUnavailableError(RetryableError):
    """The file system on which lines are kept did not answer, or has no room."""

    code = "files-unavailable"


class MySQLUnavailableError(UnansweredError):
    """MySQL could not be reached, or the connection broke and nothing was committed."""

    code = "mysql-unavailable"


class TransactionRetryError(RetryableError):
    """MySQL rolled the transaction back (deadlock, lock wait timeout); it may be run again."""

    code = "transaction-retry"


class ReadError(RetryableError):
    """Spark could not read the planned range from Kafka."""

    code = "read-failed"


class CountTimeoutError(RetryableError):
    """Counting a batch took longer than the pipeline's ``patience_s``; Spark's work was ended."""

    code = "count-timeout"


class OutcomeUnknownError(TallyError):
    """The answer to COMMIT was lost: the ledger has all of the transaction, or none of it.

    Not a :class:`RetryableError`: it may be applied. The same call never counts a line twice.
    """

    code = "outcome-unknown"
    exit_code = EXIT_RETRYABLE


class OperatorError(TallyError):
    """An operator must decide or repair something; a retry alone does not help."""

    code = "operator"
    exit_code = EXIT_OPERATOR


class AccessDeniedError(OperatorError):
    """A server refused the credentials, or a grant is missing."""

    code = "access-denied"
    credentials: tuple[str, ...] = ()
    """The keys of the configuration that were used to log in, if the login was refused."""


class SchemaError(OperatorError):
    """The ledger's tables are missing, or older or newer than this version of Tally."""

    code = "schema-not-migrated"


class StatementError(OperatorError):
    """MySQL refused a statement, and a retry would be refused too."""

    code = "mysql-refused"


class CountOverflowError(OperatorError):
    """A minute's count does not fit into the column that holds it."""

    code = "count-overflow"


class MissingTopicError(OperatorError):
    """A configured topic does not exist in Kafka."""

    code = "topic-missing"


class TopicIdError(OperatorError):
    """The brokers give topics no ids, so a topic that was created again would go unnoticed."""

    code = "topic-id-missing"


class BlockedError(OperatorError):
    """Partitions are blocked because Kafka and the ledger disagree; the others were counted."""

    code = "partitions-blocked"


class StartInFutureError(OperatorError):
    """The pipeline's start time has not come yet."""

    code = "start-in-future"


class DataLossError(OperatorError):
    """What was read is not what was planned."""

    code = "data-loss"


class RecordsMissingError(DataLossError):
    """A range was read to its end, and some of its offsets hold no record."""

    code = "records-missing"
    ranges: tuple[OffsetRange, ...] = ()
    """All that have holes, as they were planned."""


class MalformedFloodError(OperatorError):
    """More records are malformed than the pipeline allows in one batch."""

    code = "malformed-flood"


class SeriesFloodError(OperatorError):
    """The labels give more rows than the pipeline allows in one batch."""

    code = "series-flood"


class RecordTimestampError(OperatorError):
    """Kafka's timestamp of a record is so large that Spark cannot read the record."""

    code = "record-timestamp"


class JarsMissingError(OperatorError):
    """Spark's Kafka connector is not where it should be."""

    code = "jars-missing"


class PackageMissingError(OperatorError):
    """A Python package that Tally or Spark needs is not installed, or too old."""

    code = "package-missing"


class UnwritableError(OperatorError):
    """A temporary file, a kept file or the output may not be written; nothing was committed."""

    code = "unwritable"


class SparkConnectionError(OperatorError):
    """The Airflow connection to Spark is missing or cannot be used."""

    code = "spark-connection"


class StackError(OperatorError):
    """A part of the local stack could not be installed, started or stopped."""

    code = "stack"


class FencedError(TallyError):
    """The batch can no longer be changed by this attempt; it changed nothing.

    A newer attempt owns the batch, it was committed or abandoned, or the committed offset is not
    where the batch begins.
    """

    code = "fenced"
    exit_code = EXIT_FENCED


class OvertakenError(FencedError):
    """Another replay has replaced the same segments first; this one changed nothing."""

    code = "overtaken"
