"""Why brokers cannot be talked to over TLS, found out by a handshake of our own.

librdkafka has one sentence for every certificate that it does not accept, and none for a TLS
listener that is spoken to in plain text.
"""

import re
import socket
import ssl
from typing import Final

from confluent_kafka import KafkaError

from tally.config.servers import KafkaSettings, trusting
from tally.kafka.errors import KafkaFaultError

PATIENCE_S: Final = 1.0
"""Seconds for a connection, and again for each answer of its handshake."""

_BROKER: Final = re.compile(r"^\w+://(\S+?:\d+)/")
"""How librdkafka's sentences about a connection begin."""

_EXPIRED, _NOT_YET = 10, 9
_OTHER_NAMES: Final = frozenset({62, 64})  # X509_V_ERR_HOSTNAME_MISMATCH, …_IP_ADDRESS_MISMATCH
# X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT, …_DEPTH_ZERO_SELF_SIGNED_CERT, …_SELF_SIGNED_CERT_IN_CHAIN,
# …_UNABLE_TO_GET_ISSUER_CERT_LOCALLY, …_UNABLE_TO_VERIFY_LEAF_SIGNATURE
_NOT_TRUSTED: Final = frozenset({2, 18, 19, 20, 21})


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
