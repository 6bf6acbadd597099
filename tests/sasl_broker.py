"""A Kafka broker with users, passwords and ACLs, beside the one of the stack."""

import secrets
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tally_local.stack.home import Layout
from tally_local.stack.kafka_server import STARTED, KafkaServer
from tally_local.stack.ports import LOOPBACK, Ports
from tally_local.stack.stack import Stack
from tests.waiting import wait_until

STOP_S: Final = 60


@dataclass(frozen=True, kw_only=True)
class SaslBroker:
    """A running broker with two listeners."""

    open_address: str
    """Of the listener for the test's own clients, which may do everything."""
    address: str
    """Of the listener that asks for user and password, by SASL_PLAINTEXT and PLAIN."""
    user: str
    """Who may do what :meth:`SaslBroker.allow_to_read` has allowed, and nothing else."""
    password: str

    def allow_to_read(self, topic: str) -> None:
        """Let the user read a topic, which includes describing it."""
        admin = AdminClient({"bootstrap.servers": self.open_address})
        who, patterns = f"User:{self.user}", ResourcePatternType.LITERAL
        acl = AclBinding(
            ResourceType.TOPIC,
            topic,
            patterns,
            who,
            "*",
            AclOperation.READ,
            AclPermissionType.ALLOW,
        )
        for done in admin.create_acls([acl]).values():
            done.result(STOP_S)


@contextmanager
def sasl_broker(stack: Stack, folder: Path) -> Iterator[SaslBroker]:
    """Start the broker with the stack's jars and its data in a folder, and stop it at the end."""
    server = KafkaServer(layout=Layout(stack.layout.project, folder))
    ports = Ports(folder / "ports.json").choose((*server.ports, "sasl"))
    broker = SaslBroker(
        open_address=server.address(ports),
        address=f"{LOOPBACK}:{ports['sasl']}",
        user="ann",
        password=secrets.token_hex(8),
    )
    command = server.prepare(ports)
    both = f"PLAINTEXT://{broker.open_address},SASL_PLAINTEXT://{broker.address}"
    with (server.folder / "server.properties").open("a", encoding="utf-8") as config:
        config.write(
            f"listeners={both},CONTROLLER://{LOOPBACK}:{ports['kafka_controller']}\n"
            f"advertised.listeners={both}\n"
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,"
            "SASL_PLAINTEXT:SASL_PLAINTEXT\n"
            "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n"
            "super.users=User:ANONYMOUS\n"
            "sasl.enabled.mechanisms=PLAIN\n"
            "listener.name.sasl_plaintext.plain.sasl.jaas.config="
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'user_{broker.user}="{broker.password}";\n'
        )
    log = folder / "log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command.argv, cwd=command.cwd, env=command.env, stdout=stream, stderr=stream
        )
    try:
        wait_until(lambda: STARTED in log.read_bytes() or process.poll() is not None)
        assert process.poll() is None, log.read_text(encoding="utf-8")
        yield broker
    finally:
        process.terminate()
        process.wait(STOP_S)
