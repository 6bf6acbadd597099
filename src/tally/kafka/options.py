"""The configuration of a Kafka client, from Tally's."""

import logging
from typing import Any

from tally.config.servers import KafkaSettings, trusting

# librdkafka would log to stderr by itself; its errors reach the caller as exceptions.
SILENT = logging.getLogger("tally.kafka.requests")
SILENT.addHandler(logging.NullHandler())
SILENT.propagate = False


def client_options(settings: KafkaSettings) -> dict[str, Any]:
    """The settings as librdkafka's configuration, secrets included.

    Raises:
        ConfigError: The authorities to trust cannot be read.
    """
    options: dict[str, Any] = {
        "bootstrap.servers": settings.bootstrap_servers,
        "security.protocol": settings.security_protocol.lower(),
        "socket.timeout.ms": int(settings.request_timeout_s * 1000),
        "allow.auto.create.topics": False,
    }
    if settings.sasl_mechanism is not None and settings.sasl_password is not None:
        options |= {
            "sasl.mechanism": settings.sasl_mechanism,
            "sasl.username": settings.sasl_username,
            "sasl.password": settings.sasl_password.get_secret_value(),
        }
    if settings.ssl_ca_location is not None:
        trusting(settings.ssl_ca_location, "kafka.ssl_ca_location")  # says why not
        options["ssl.ca.location"] = str(settings.ssl_ca_location)
    return options
