"""A listener that accepts a TLS handshake and then closes the connection, and its certificate."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from threading import Thread
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

HOST: Final = "127.0.0.1"
SILENCE_S: Final = 5
"""After so long a client that says nothing is left."""
DAY: Final = timedelta(days=1)

# A MySQL server that offers TLS: its greeting, and the length of the client's answer.
_SSL_REQUEST: Final = 36
_GREETING: Final = b"\x0a9.7\0" + bytes(13) + b"\x00\x8a" + bytes(3) + b"\x08\0\x15" + bytes(23)
MYSQLS_GREETING: Final = len(_GREETING).to_bytes(3, "little") + b"\0" + _GREETING
"""The first packet of the connection."""


def certificate(folder: Path, *, name: str = HOST, days: int = 1, password: str = "") -> Path:
    """A PEM file with a certificate that signs itself, and its key.

    Args:
        folder: Where the file goes.
        name: The host's name or address.
        days: Until when it is valid, from now; it began two days ago.
        password: By which the key is encrypted; '' when it is not.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    who = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    is_address = name[0].isdigit()
    of = x509.IPAddress(IPv4Address(name)) if is_address else x509.DNSName(name)
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder(subject_name=who, issuer_name=who, public_key=key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 2 * DAY)
        .not_valid_after(now + days * DAY)
        .add_extension(x509.SubjectAlternativeName([of]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = folder / f"{signed.serial_number}.pem"
    file.write_bytes(
        signed.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(password.encode())
            if password
            else serialization.NoEncryption(),
        )
    )
    return file


@contextmanager
def tls_listener(shown: Path, greeting: bytes = b"") -> Iterator[str]:
    """A listener that shows a certificate; gives its ``host:port``.

    Args:
        shown: The certificate and its key.
        greeting: Sent first, in plain text; what the client answers is not looked at.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(shown)
    with socket.create_server((HOST, 0)) as server:

        def accept() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:  # closed
                    return
                Thread(target=shake_hands, args=(connection,)).start()

        def shake_hands(connection: socket.socket) -> None:
            connection.settimeout(SILENCE_S)
            if greeting:
                connection.sendall(greeting)
                connection.recv(_SSL_REQUEST)
            with (
                connection,
                suppress(OSError),
                context.wrap_socket(connection, server_side=True),
            ):
                pass

        thread = Thread(target=accept)
        thread.start()
        try:
            yield f"{HOST}:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
