"""Kafka's errors as Tally's, in one place; the driver's own text is kept.

librdkafka has one sentence for every certificate that it does not accept, and none for a TLS
listener that is spoken to in plain text: a handshake of our own finds out why.
"""

import re
import socket
import ssl
from typing import Final

from confluent_kafka import KafkaError

from tally.config.kafka_clients import tls_context
from tally.config.servers import KafkaSettings
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


NO_TOKEN: Final = "Failed to acquire SASL OAUTHBEARER token"  # noqa: S105
"""How librdkafka begins when the issuer gives no token."""


class MovingError(KafkaUnavailableError):
    """The broker that could answer is being chosen, or has changed; it is a matter of moments.

    It is a partition's leader, or a consumer group's coordinator, which the first group of a
    cluster does not have at once.
    """


class TopicExistsError(KafkaUnavailableError):
    """A topic of that name exists already."""


class UnknownTopicError(KafkaUnavailableError):
    """Kafka does not know the topic or the partition, or not at this moment."""


_UNKNOWN: Final = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - librdkafka's local errors
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001 - librdkafka's local errors
)
_MOVING: Final = (
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)
_NEXT_OF_MOVING: Final = "run it again once the partition has a leader, and the group a coordinator"
_OF_CODE: Final = {
    **dict.fromkeys(_UNKNOWN, (UnknownTopicError, "")),
    **dict.fromkeys(_MOVING, (MovingError, _NEXT_OF_MOVING)),
    KafkaError.TOPIC_ALREADY_EXISTS: (TopicExistsError, ""),
}
"""Answers that have an error of their own, and what to do next."""


def translate(
    settings: KafkaSettings, operation: str, error: KafkaError, connection: KafkaError | None = None
) -> TallyError:
    """Kafka's error as one of Tally's.

    Args:
        settings: How the brokers were to be reached.
        operation: What was asked, as a verb phrase: ``list offsets``.
        error: The answer.
        connection: What is wrong with the client's connections; None without an error.
    """
    failed = f"Kafka ({settings.bootstrap_servers}) could not {operation}"
    if error.code() in _OF_CODE:
        kind, next_step = _OF_CODE[error.code()]
        return kind(f"{failed}: {error.str()}", next_step=next_step)
    refusal = next((e for e in (error, connection) if e and e.code() in DENIED), None)
    if refusal is None:
        return unavailable(settings, error.str(), connection)
    what = f"{failed}: {refusal.str()}"
    if NO_TOKEN in refusal.str() and '"error"' not in refusal.str():
        return KafkaUnavailableError(
            what,
            next_step="check that kafka.sasl_oauthbearer_token_endpoint_url answers here, "
            "and that kafka.ssl_ca_location has its authority, too",
        )
    denied = AccessDeniedError(what, next_step=_who(settings))
    if refusal.code() in _LOGIN_REFUSED:
        denied.credentials = ("kafka.sasl_username", "kafka.sasl_password")
    return denied


def _who(settings: KafkaSettings) -> str:
    """What to check when the brokers, or the issuer of tokens, do not let the client do it."""
    if settings.sasl_mechanism is None and settings.ssl_keystore_location is not None:
        return "check the ACLs of the subject of the certificate in kafka.ssl_keystore_location"
    return "check kafka.sasl_username, its password and its ACLs"


def unavailable(
    settings: KafkaSettings, cause: str, connection: KafkaError | None
) -> KafkaUnavailableError:
    """The error of a request without an answer; arguments as for :func:`translate`."""
    because = f": {connection.str()}" if connection else ""
    return KafkaUnavailableError(
        f"Kafka ({settings.bootstrap_servers}) did not answer within "
        f"{settings.request_timeout_s:g} s: {cause}{because}"
    )


def more_telling(before: KafkaError | None, now: KafkaError) -> KafkaError:
    """Which of two errors of a client's connections an operator should see.

    A refusal before anything else, as trying again does not help; a cause before the statement that
    no broker is left; else the later one.
    """
    return now if before is None else max(now, before, key=_weight)


def _weight(error: KafkaError) -> int:
    if error.code() in DENIED:
        return 2
    return int(error.code() != KafkaError._ALL_BROKERS_DOWN)  # noqa: SLF001 - as above


PATIENCE_S: Final = 1.0
"""Seconds for a connection, and again for each answer of its handshake."""

_BROKER: Final = re.compile(r"^\w+://(\S+?:\d+)/")
"""How librdkafka's sentences about a connection begin."""

_REMEDIES: Final = {
    # X509_V_ERR_CERT_NOT_YET_VALID, …_CERT_HAS_EXPIRED
    **dict.fromkeys((9, 10), "renew the broker's certificate, or correct this machine's clock"),
    # X509_V_ERR_HOSTNAME_MISMATCH, …_IP_ADDRESS_MISMATCH
    **dict.fromkeys(
        (62, 64),
        "name the brokers in kafka.bootstrap_servers, and in their advertised.listeners, as their "
        "certificate does",
    ),
    # X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT, …_DEPTH_ZERO_SELF_SIGNED_CERT,
    # …_SELF_SIGNED_CERT_IN_CHAIN, …_UNABLE_TO_GET_ISSUER_CERT_LOCALLY,
    # …_UNABLE_TO_VERIFY_LEAF_SIGNATURE
    **dict.fromkeys(
        (2, 18, 19, 20, 21),
        "let kafka.ssl_ca_location name a PEM file with the authority that signed it",
    ),
}
"""What to do about a certificate, by OpenSSL's reason for not accepting it."""


_ALERT: Final = re.compile(r"SSL alert number (\d+)")
# RFC 8446, section 6.2; 40 is what TLS 1.2 has for a certificate that is missing.
_HANDSHAKE_FAILURE: Final = 40
_OF_CERTIFICATES: Final = range(_HANDSHAKE_FAILURE, 50)
_REQUIRED: Final = 116


def fault(settings: KafkaSettings, operation: str, connection: KafkaError) -> TallyError | None:
    """What is wrong between these settings and a broker's listener; None if nothing is found.

    Waiting for an answer does not help then.

    Args:
        settings: How the brokers were to be reached.
        operation: What was asked, as a verb phrase.
        connection: librdkafka's error of the connections, all of which are down. The broker that it
            names is examined, else the first bootstrap server.
    """
    protocol = settings.security_protocol
    has_tls = protocol.endswith("SSL")
    if refused := _certificate_refused(settings, operation, connection):
        return refused
    if has_tls and connection.code() != KafkaError._SSL:  # noqa: SLF001 - its only name
        return None
    first = settings.bootstrap_servers.partition(",")[0].strip().rpartition("//")[2]
    named = _BROKER.match(connection.str())
    address = named[1] if named else first
    try:
        _shake_hands(address, _context(settings))
    except ssl.SSLCertVerificationError as error:
        what = f"the broker's certificate is not accepted: {error.verify_message}"
        next_step = _REMEDIES.get(error.verify_code, "correct the broker's certificate")
    except (OSError, ValueError):  # an SSLError is one; librdkafka's own words are better
        return None
    else:
        if has_tls:
            return None
        what = f"the listener speaks TLS, and kafka.security_protocol is {protocol}"
        with_tls = protocol.replace("PLAINTEXT", "SSL")
        next_step = f"set kafka.security_protocol to {with_tls}, or name a listener without TLS"
    return KafkaUnavailableError(
        f"Kafka ({address}) could not {operation}: {what}: {connection.str()}", next_step=next_step
    )


def _certificate_refused(
    settings: KafkaSettings, operation: str, connection: KafkaError
) -> AccessDeniedError | None:
    """The error of a broker that ends the handshake for what the client shows of itself."""
    alert = _ALERT.search(connection.str())
    if alert is None or int(alert[1]) not in (*_OF_CERTIFICATES, _REQUIRED):
        return None
    own = settings.ssl_keystore_location
    # It may be no certificate, or nothing else in common.
    asks = "may ask" if int(alert[1]) == _HANDSHAKE_FAILURE else "asks"
    refused = AccessDeniedError(
        f"Kafka ({settings.bootstrap_servers}) could not {operation}: "
        + (f"the broker {asks} for a certificate" if own is None else f"it refuses that of {own}")
        + f": {connection.str()}",
        next_step="let kafka.ssl_keystore_location name a PEM file with a certificate of an "
        "authority that the brokers trust, and its key",
    )
    refused.credentials = ("kafka.ssl_keystore_location",)
    return refused


def _context(settings: KafkaSettings) -> ssl.SSLContext:
    """What librdkafka accepts of a certificate; any one where it is to be spoken to without TLS."""
    if settings.security_protocol.endswith("SSL"):
        context = tls_context(settings)
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # librdkafka is not as strict
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _shake_hands(address: str, context: ssl.SSLContext) -> None:
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    with (
        socket.create_connection((host, int(port)), PATIENCE_S) as connection,
        context.wrap_socket(connection, server_hostname=host),
    ):
        pass
