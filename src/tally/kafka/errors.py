"""Kafka's errors as Tally's, in one place; the driver's own text is kept."""

from confluent_kafka import KafkaError

from tally.errors import AccessDeniedError, KafkaUnavailableError, TallyError

_LOGIN_REFUSED = frozenset(
    {
        KafkaError._AUTHENTICATION,  # noqa: SLF001 - librdkafka's own spelling of its local errors
        KafkaError.SASL_AUTHENTICATION_FAILED,
    }
)

DENIED = frozenset(
    {
        *_LOGIN_REFUSED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
    }
)

_LEADER_MOVING = frozenset(
    {
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    }
)

_COORDINATOR_MOVING = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    }
)

_MOVING = (
    (_LEADER_MOVING, "the partition has a leader"),
    (_COORDINATOR_MOVING, "the group has a coordinator"),
)


class MovingError(KafkaUnavailableError):
    """The broker that could answer is being chosen, or has changed; it is a matter of moments.

    It is a partition's leader, or a consumer group's coordinator, which the first group of a
    cluster does not have at once.
    """


class KafkaFaultError(KafkaUnavailableError):
    """The settings and the brokers' listener do not fit; waiting for an answer does not help."""


class TopicExistsError(KafkaUnavailableError):
    """A topic of that name exists already."""


class UnknownTopicError(KafkaUnavailableError):
    """Kafka does not know the topic or the partition, or not at this moment."""


def translate(
    servers: str, operation: str, error: KafkaError, connection: KafkaError | None, timeout_s: float
) -> TallyError:
    """Kafka's error as one of Tally's.

    Args:
        servers: The bootstrap servers that were asked.
        operation: What was asked, as a verb phrase: ``list offsets``.
        error: The answer.
        connection: What is wrong with the client's connections; None without an error.
        timeout_s: How long an answer was waited for.
    """
    if error.code() in {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - librdkafka's local errors
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001 - librdkafka's local errors
    }:
        return UnknownTopicError(f"Kafka could not {operation}: {error.str()}")
    if error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
        return TopicExistsError(f"Kafka could not {operation}: {error.str()}")
    for moving, awaited in _MOVING:
        if error.code() in moving:
            return MovingError(
                f"Kafka ({servers}) could not {operation}: {error.str()}",
                next_step=f"run it again once {awaited}",
            )
    refusal = next((e for e in (error, connection) if e and e.code() in DENIED), None)
    if refusal is not None:
        denied = AccessDeniedError(
            f"Kafka ({servers}) could not {operation}: {refusal.str()}",
            next_step="check kafka.sasl_username, its password and its ACLs",
        )
        if refusal.code() in _LOGIN_REFUSED:
            denied.credentials = ("kafka.sasl_username", "kafka.sasl_password")
        return denied
    return unavailable(servers, error.str(), connection, timeout_s)


def unavailable(
    servers: str, cause: str, connection: KafkaError | None, timeout_s: float
) -> KafkaUnavailableError:
    """The error of a request without an answer; arguments as for :func:`translate`."""
    because = f": {connection.str()}" if connection else ""
    return KafkaUnavailableError(
        f"Kafka ({servers}) did not answer within {timeout_s:g} s: {cause}{because}"
    )


def more_telling(before: KafkaError | None, now: KafkaError) -> KafkaError:
    """Which of two errors of a client's connections an operator should see.

    A refusal before anything else, as trying again does not help; a cause before the statement that
    no broker is left; else the later one.
    """
    return now if before is None or _weight(now) >= _weight(before) else before


def _weight(error: KafkaError) -> int:
    if error.code() in DENIED:
        return 2
    return int(error.code() != KafkaError._ALL_BROKERS_DOWN)  # noqa: SLF001 - as above
