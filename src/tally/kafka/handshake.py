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

SERVERS_MAX: Final = 3
"""So many are asked."""

_BROKER: Final = re.compile(r"^\w+://(\S+?:\d+)/")
"""How librdkafka's sentences about a connection begin."""

_EXPIRED, _NOT_YET = 10, 9
_OTHER_NAMES: Final = frozenset({62, 64})  # X509_V_ERR_HOSTNAME_MISMATCH, …_IP_ADDRESS_MISMATCH


def fault(settings: KafkaSettings, connection: KafkaError) -> KafkaFaultError | None:
    """What is wrong between these settings and the brokers' listener; None if nothing is found.

    Args:
        settings: How the brokers were to be reached.
        connection: librdkafka's error of the connections, all of which are down.
    """
    if not settings.security_protocol.endswith("SSL"):
        return _spoken_plainly(settings)
    if connection.code() != KafkaError._SSL:  # noqa: SLF001 - its only name
        return None
    named = _BROKER.match(connection.str())
    addresses = [named[1]] if named else _addresses(settings)
    return next(filter(None, (_refused(settings, address) for address in addresses)), None)


def _spoken_plainly(settings: KafkaSettings) -> KafkaFaultError | None:
    anyone = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anyone.check_hostname, anyone.verify_mode = False, ssl.CERT_NONE
    for address in _addresses(settings):
        try:
            _shake_hands(address, anyone)
        except (OSError, ValueError):  # an SSLError is one
            continue
        with_tls = settings.security_protocol.replace("PLAINTEXT", "SSL")
        return KafkaFaultError(
            f"Kafka ({address}) speaks TLS, and kafka.security_protocol is "
            f"{settings.security_protocol}",
            next_step=f"set kafka.security_protocol to {with_tls}, or name a listener without TLS",
        )
    return None


def _refused(settings: KafkaSettings, address: str) -> KafkaFaultError | None:
    context = trusting(settings.ssl_ca_location, "kafka.ssl_ca_location")
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # librdkafka is not as strict
    try:
        _shake_hands(address, context)
    except ssl.SSLCertVerificationError as error:
        return KafkaFaultError(
            f"Kafka ({address}) has a certificate that is not accepted: {error.verify_message}",
            next_step=_remedy(error.verify_code),
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
    return "let kafka.ssl_ca_location name a PEM file with the authority that signed it"


def _shake_hands(address: str, context: ssl.SSLContext) -> None:
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    with (
        socket.create_connection((host, int(port)), PATIENCE_S) as connection,
        context.wrap_socket(connection, server_hostname=host),
    ):
        pass


def _addresses(settings: KafkaSettings) -> list[str]:
    """The first bootstrap servers, as ``host:port``."""
    named = settings.bootstrap_servers.split(",")[:SERVERS_MAX]
    return [server.strip().rpartition("//")[2] for server in named]
