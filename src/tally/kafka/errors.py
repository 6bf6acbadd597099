"""Kafka's errors as Tally's, in one place; the driver's own text is kept.

librdkafka has one sentence for every certificate that it does not accept, and none for a TLS
listener that is spoken to in plain text: a handshake of our own finds out why.
"""

import re
import socket
import ssl
from typing import Final

from confluent_kafka import KafkaError

from tally.config.servers import KafkaSettings, trusting
from tally.errors import AccessDeniedError, KafkaUnavailableError, TallyError

_LOGIN_REFUSED = (
    KafkaError._AUTHENTICATION,  # noqa: SLF001 - librdkafka's own spelling of its local errors
    KafkaError.SASL_AUTHENTICATION_FAILED,
)

DENIED = (
    *_LOGIN_REFUSED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
)

_LEADER_MOVING = (
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
)

_COORDINATOR_MOVING = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
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


PATIENCE_S: Final = 1.0
"""Seconds for a connection, and again for each answer of its handshake."""

_BROKER: Final = re.compile(r"^\w+://(\S+?:\d+)/")
"""How librdkafka's sentences about a connection begin."""

_EXPIRED, _NOT_YET = 10, 9
_OTHER_NAMES: Final = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, …_IP_ADDRESS_MISMATCH
# X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT, …_DEPTH_ZERO_SELF_SIGNED_CERT, …_SELF_SIGNED_CERT_IN_CHAIN,
# …_UNABLE_TO_GET_ISSUER_CERT_LOCALLY, …_UNABLE_TO_VERIFY_LEAF_SIGNATURE
_NOT_TRUSTED: Final = (2, 18, 19, 20, 21)


def fault(
    settings: KafkaSettings, operation: str, connection: KafkaError
) -> KafkaFaultError | None:
    """What is wrong between these settings and a broker's listener; None if nothing is found.

    Args:
        settings: How the brokers were to be reached.
        operation: What was asked, as a verb phrase.
        connection: librdkafka's error of the connections, all of which are down. The broker that it
            names is examined, else the first bootstrap server.
    """
    named = _BROKER.match(connection.str())
    address = named[1] if named else _first(settings.bootstrap_servers)
    if not settings.security_protocol.endswith("SSL"):
        found = _spoken_plainly(settings, address)
    elif connection.code() == KafkaError._SSL:  # noqa: SLF001 - its only name
        found = _refused(settings, address)
    else:
        return None
    if found is None:
        return None
    what, next_step = found
    return KafkaFaultError(
        f"Kafka ({address}) could not {operation}: {what}: {connection.str()}", next_step=next_step
    )


def _spoken_plainly(settings: KafkaSettings, address: str) -> tuple[str, str] | None:
    anyone = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anyone.check_hostname, anyone.verify_mode = False, ssl.CERT_NONE
    try:
        _shake_hands(address, anyone)
    except (OSError, ValueError):  # an SSLError is one
        return None
    with_tls = settings.security_protocol.replace("PLAINTEXT", "SSL")
    return (
        f"the listener speaks TLS, and kafka.security_protocol is {settings.security_protocol}",
        f"set kafka.security_protocol to {with_tls}, or name a listener without TLS",
    )


def _refused(settings: KafkaSettings, address: str) -> tuple[str, str] | None:
    context = trusting(settings.ssl_ca_location, "kafka.ssl_ca_location")
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # librdkafka is not as strict
    try:
        _shake_hands(address, context)
    except ssl.SSLCertVerificationError as error:
        return (
            f"the broker's certificate is not accepted: {error.verify_message}",
            _remedy(error.verify_code),
        )
    except (OSError, ValueError):  # librdkafka's own words are better
        return None
    return None


def _remedy(code: int) -> str:
    if code in {_EXPIRED, _NOT_YET}:
        return "renew the broker's certificate, or correct the clock of this machine"
    if code in _OTHER_NAMES:
        return (
            "name the brokers in kafka.bootstrap_servers, and in their advertised.listeners, as "
            "their certificate does"
        )
    if code in _NOT_TRUSTED:
        return "let kafka.ssl_ca_location name a PEM file with the authority that signed it"
    return "correct the broker's certificate"


def _shake_hands(address: str, context: ssl.SSLContext) -> None:
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    with (
        socket.create_connection((host, int(port)), PATIENCE_S) as connection,
        context.wrap_socket(connection, server_hostname=host),
    ):
        pass


def _first(servers: str) -> str:
    """The first bootstrap server, as ``host:port``."""
    return servers.partition(",")[0].strip().rpartition("//")[2]
