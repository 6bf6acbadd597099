"""A Kafka broker that lets nobody in without a login, and who gives tokens for it."""

import json
import secrets
import subprocess
import time
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext
from threading import Thread
from typing import Any, Final

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tally_local.stack.home import Layout
from tally_local.stack.kafka_server import STARTED, KafkaServer
from tally_local.stack.ports import LOOPBACK, Ports
from tally_local.stack.stack import Stack
from tests.tls_listener import certificate
from tests.waiting import wait_until

STOP_S: Final = 60
USER: Final = "ann"
"""Who may do what :meth:`LockedBroker.allow_to_read` has allowed, and nothing else; by each of the
ways to log in."""
AUDIENCE: Final = "tally"
_LISTENERS: Final = {"password": "SASL_PLAINTEXT", "certificate": "SSL", "token": "SASL_SSL"}


@dataclass(frozen=True, kw_only=True)
class LockedBroker:
    """A running broker with a listener for each way to log in."""

    open_address: str
    """Of the listener for the test's own clients, which may do everything."""
    address: Mapping[str, str]
    """Of the others: of ``password`` (PLAIN), ``certificate`` and ``token`` (with TLS)."""
    authority: Path
    """Who has signed the broker's certificate, and the issuer's; itself."""
    certificate: Path
    """The user's, which the broker trusts."""
    password: str
    """The user's, with the broker and with the issuer."""
    token_url: str
    """Where the issuer gives tokens."""

    def settings(self, door: str) -> dict[str, str]:
        """How the user comes in, by key of the configuration."""
        login = {"sasl_username": USER, "sasl_password": self.password}
        return {
            "bootstrap_servers": self.address[door],
            "security_protocol": _LISTENERS[door],
            **({} if door == "password" else {"ssl_ca_location": str(self.authority)}),
            **{
                "password": {"sasl_mechanism": "PLAIN", **login},
                "certificate": {"ssl_keystore_location": str(self.certificate)},
                "token": {
                    "sasl_mechanism": "OAUTHBEARER",
                    "sasl_oauthbearer_token_endpoint_url": self.token_url,
                    "sasl_oauthbearer_scope": AUDIENCE,
                    **login,
                },
            }[door],
        }

    def allow_to_read(self, topic: str) -> None:
        """Let the user read a topic, which includes describing it."""
        admin = AdminClient({"bootstrap.servers": self.open_address})
        for who in (f"User:{USER}", f"User:CN={USER}"):
            acl = AclBinding(
                ResourceType.TOPIC,
                topic,
                ResourcePatternType.LITERAL,
                who,
                "*",
                AclOperation.READ,
                AclPermissionType.ALLOW,
            )
            for done in admin.create_acls([acl]).values():
                done.result(STOP_S)


@contextmanager
def locked_broker(stack: Stack, folder: Path) -> Iterator[LockedBroker]:
    """Start the broker with the stack's jars and its data in a folder, and stop it at the end."""
    server = KafkaServer(layout=Layout(stack.layout.project, folder))
    ports = Ports(folder / "ports.json").choose((*server.ports, *_LISTENERS))
    authority, password = certificate(folder), secrets.token_hex(8)
    with _issuer(password, authority) as issuer:
        broker = LockedBroker(
            open_address=server.address(ports),
            address={door: f"{LOOPBACK}:{ports[door]}" for door in _LISTENERS},
            authority=authority,
            certificate=certificate(folder, name=USER),
            password=password,
            token_url=f"{issuer}/token",
        )
        command = server.prepare(ports)
        with (server.folder / "server.properties").open("a", encoding="utf-8") as config:
            config.write(_properties(broker, f"{issuer}/keys", ports["kafka_controller"]))
        program, *arguments = command.argv
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={issuer}/keys"
        log = folder / "log"
        with log.open("wb") as stream:
            process = subprocess.Popen(
                [program, allowed, *_trusting(folder, authority), *arguments],
                cwd=command.cwd,
                env=command.env,
                stdout=stream,
                stderr=stream,
            )
        try:
            wait_until(lambda: STARTED in log.read_bytes() or process.poll() is not None)
            assert process.poll() is None, log.read_text(encoding="utf-8")
            yield broker
        finally:
            process.terminate()
            process.wait(STOP_S)


def _properties(broker: LockedBroker, keys_url: str, controller: int) -> str:
    addresses = ["PLAINTEXT://" + broker.open_address]
    addresses += [f"{door.upper()}://{address}" for door, address in broker.address.items()]
    protocols = [f"{door.upper()}:{protocol}" for door, protocol in _LISTENERS.items()]
    modules, names = "org.apache.kafka.common.security", "listener.name"
    return f"""
listeners={",".join(addresses)},CONTROLLER://{LOOPBACK}:{controller}
advertised.listeners={",".join(addresses)}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,{",".join(protocols)}
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
ssl.keystore.type=PEM
ssl.keystore.location={broker.authority}
{names}.certificate.ssl.client.auth=required
{names}.certificate.ssl.truststore.type=PEM
{names}.certificate.ssl.truststore.location={broker.certificate}
{names}.password.sasl.enabled.mechanisms=PLAIN
{names}.password.plain.sasl.jaas.config={modules}.plain.PlainLoginModule required \
user_{USER}="{broker.password}";
{names}.token.sasl.enabled.mechanisms=OAUTHBEARER
{names}.token.oauthbearer.sasl.jaas.config={modules}.oauthbearer.OAuthBearerLoginModule required;
{names}.token.oauthbearer.sasl.server.callback.handler.class={modules}.oauthbearer.\
OAuthBearerValidatorCallbackHandler
sasl.oauthbearer.jwks.endpoint.url={keys_url}
sasl.oauthbearer.expected.audience={AUDIENCE}
"""


def _trusting(folder: Path, authority: Path) -> list[str]:
    """What lets Java itself trust the issuer, from which the broker gets keys."""
    store, password = folder / "trusted.p12", secrets.token_hex(8)
    subprocess.run(
        [
            *("keytool", "-importcert", "-noprompt", "-alias", "authority", "-file", authority),
            *("-keystore", store, "-storetype", "PKCS12", "-storepass", password),
        ],
        check=True,
        capture_output=True,
    )
    return [
        f"-Djavax.net.ssl.trustStore={store}",
        f"-Djavax.net.ssl.trustStorePassword={password}",
    ]


@contextmanager
def _issuer(password: str, shown: Path) -> Iterator[str]:
    """Gives tokens to the user (OpenID Connect, client credentials), and its key to the broker."""
    key = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)

    class Issuer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            numbers = key.public_key().public_numbers()
            parts = {"n": _number(numbers.n), "e": _number(numbers.e)}
            self._answer(200, {"keys": [{"kty": "RSA", "kid": "1", "use": "sig", **parts}]})

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            login = b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
            if login != f"{USER}:{password}":
                self._answer(401, {"error": "invalid_client", "error_description": "not known"})
                return
            now = int(time.time())
            claims = {"sub": USER, "aud": AUDIENCE, "iss": "tests", "scope": AUDIENCE}
            token = _signed(key, {**claims, "iat": now, "exp": now + 3_600})
            self._answer(200, {"access_token": token, "token_type": "Bearer", "expires_in": 3_600})

        def _answer(self, status: int, document: Mapping[str, Any]) -> None:
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    context = SSLContext(PROTOCOL_TLS_SERVER)
    context.load_cert_chain(shown)
    with ThreadingHTTPServer((LOOPBACK, 0), Issuer) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"https://{LOOPBACK}:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def _signed(key: rsa.RSAPrivateKey, claims: Mapping[str, Any]) -> str:
    parts = [{"alg": "RS256", "kid": "1"}, claims]
    text = ".".join(_base64(json.dumps(part).encode()) for part in parts)
    signature = key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256())
    return f"{text}.{_base64(signature)}"


def _number(value: int) -> str:
    return _base64(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def _base64(value: bytes) -> str:
    return urlsafe_b64encode(value).rstrip(b"=").decode()
