"""Kafka's settings as its two clients take them: librdkafka's, which plans, and Java's in Spark."""

import ssl
from typing import Any, Final

from tally.config.certificates import showing, trusting
from tally.config.servers import KafkaSettings

_OAUTH: Final = "sasl.oauthbearer"
_LOGIN_MODULE: Final = {
    "PLAIN": "plain.PlainLoginModule",
    "SCRAM-SHA-256": "scram.ScramLoginModule",
    "SCRAM-SHA-512": "scram.ScramLoginModule",
    "OAUTHBEARER": "oauthbearer.OAuthBearerLoginModule",
}
_PACKAGE: Final = "org.apache.kafka.common.security"


def tls_context(settings: KafkaSettings) -> ssl.SSLContext:
    """What the settings trust and show.

    Raises:
        ConfigError: A file that they name cannot be read, or has not what it should.
    """
    context = trusting(settings.ssl_ca_location, "kafka.ssl_ca_location")
    if settings.ssl_keystore_location is not None:
        where, password = settings.ssl_keystore_location, settings.ssl_key_password
        showing(context, where, password, "kafka.ssl_keystore_location")
    return context


def librdkafka_options(settings: KafkaSettings) -> dict[str, Any]:
    """How librdkafka reaches the brokers, secrets included.

    Raises:
        ConfigError: As :func:`tls_context`.
    """
    if settings.ssl_ca_location is not None or settings.ssl_keystore_location is not None:
        tls_context(settings)  # says why not
    options = {
        "bootstrap.servers": settings.bootstrap_servers,
        "security.protocol": settings.security_protocol.lower(),
    }
    if settings.ssl_ca_location is not None:
        options["ssl.ca.location"] = str(settings.ssl_ca_location)
    if settings.ssl_keystore_location is not None:
        both = str(settings.ssl_keystore_location)
        options |= {"ssl.certificate.location": both, "ssl.key.location": both}
    if settings.ssl_key_password is not None:
        options["ssl.key.password"] = settings.ssl_key_password.get_secret_value()
    if settings.sasl_mechanism is None:
        return options
    options["sasl.mechanism"] = settings.sasl_mechanism
    user, password = _login(settings)
    if settings.sasl_mechanism != "OAUTHBEARER":
        return {**options, "sasl.username": user, "sasl.password": password}
    extensions = ",".join(map("=".join, settings.sasl_oauthbearer_extensions.items()))
    return options | {
        f"{_OAUTH}.method": "oidc",
        f"{_OAUTH}.client.id": user,
        f"{_OAUTH}.client.secret": password,
        f"{_OAUTH}.token.endpoint.url": str(settings.sasl_oauthbearer_token_endpoint_url),
        **_given(f"{_OAUTH}.scope", settings.sasl_oauthbearer_scope),
        **_given(f"{_OAUTH}.extensions", extensions),
        # Without it the wheel looks for the system's authorities where Debian has none.
        "https.ca.location": options.get("ssl.ca.location", "probe"),
    }


def java_options(settings: KafkaSettings) -> dict[str, str]:
    """How Java's client reaches the brokers, secrets included."""
    options = {
        "bootstrap.servers": settings.bootstrap_servers,
        "security.protocol": settings.security_protocol,
    }
    trusted = {}
    if settings.ssl_ca_location is not None:
        trusted = {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(settings.ssl_ca_location),
        }
    if settings.ssl_keystore_location is not None:
        options["ssl.keystore.type"] = "PEM"
        options["ssl.keystore.location"] = str(settings.ssl_keystore_location)
    if settings.ssl_key_password is not None:
        options["ssl.key.password"] = settings.ssl_key_password.get_secret_value()
    options |= trusted
    if settings.sasl_mechanism is None:
        return options
    user, password = _login(settings)
    if settings.sasl_mechanism == "OAUTHBEARER":
        options |= {
            "sasl.login.callback.handler.class": f"{_PACKAGE}.oauthbearer."
            "OAuthBearerLoginCallbackHandler",
            f"{_OAUTH}.token.endpoint.url": str(settings.sasl_oauthbearer_token_endpoint_url),
        }
        asked = {"clientId": user, "clientSecret": password, **trusted}
        asked |= _given("scope", settings.sasl_oauthbearer_scope)
        asked |= {f"extension_{k}": v for k, v in settings.sasl_oauthbearer_extensions.items()}
    else:
        asked = {"username": user, "password": password}
    module = _LOGIN_MODULE[settings.sasl_mechanism]
    given = " ".join(f"{key}={_quoted(value)}" for key, value in asked.items())
    options["sasl.mechanism"] = settings.sasl_mechanism
    options["sasl.jaas.config"] = f"{_PACKAGE}.{module} required {given};"
    return options


def _login(settings: KafkaSettings) -> tuple[str, str]:
    password = settings.sasl_password
    return settings.sasl_username or "", password.get_secret_value() if password else ""


def _given(key: str, value: str | None) -> dict[str, str]:
    return {key: value} if value else {}


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
