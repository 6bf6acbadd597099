"""Certificates for TLS: the authorities to trust, and what the client shows of itself."""

import re
import ssl
from pathlib import Path
from typing import Final

from pydantic import SecretStr

from tally.errors import ConfigError

_PKCS8: Final = re.compile(rb"-----BEGIN (ENCRYPTED )?PRIVATE KEY-----")


def trusting(authorities: Path | None, key: str) -> ssl.SSLContext:
    """A context for TLS that checks the server's certificate and name.

    Args:
        authorities: A PEM file; None for the system's.
        key: The key of the configuration that names it.

    Raises:
        ConfigError: The file is not there, cannot be read or holds no certificate.
    """
    try:
        return ssl.create_default_context(cafile=authorities)
    except OSError as error:  # an SSLError is one
        raise ConfigError(
            f"{key} = {authorities}: {error.strerror or error}",
            next_step="name a file of certificates in PEM that this user may read",
        ) from error


def showing(context: ssl.SSLContext, own: Path, password: SecretStr | None, key: str) -> None:
    """Let a context show a certificate of the client.

    Args:
        context: For TLS.
        own: A PEM file with the certificate and its key.
        password: The key's.
        key: The key of the configuration that names the file.

    Raises:
        ConfigError: The file is not there, cannot be read, or has not both.
    """
    secret = f"{key.partition('.')[0]}.ssl_key_password"
    try:
        found = _PKCS8.search(own.read_bytes())
        if found is None:
            raise ConfigError(  # Java reads no other one
                f"{key} = {own}: it has no key in PKCS#8",
                next_step="openssl pkcs8 -topk8 writes one; put it behind the certificate",
            )
        if found[1] and password is None:  # OpenSSL would ask the terminal
            raise ConfigError(f"{key} = {own}: its key is encrypted", next_step=f"set {secret}")
        context.load_cert_chain(own, password=password.get_secret_value() if password else None)
    except ssl.SSLError as error:
        raise ConfigError(
            f"{key} = {own}: it is no PEM, or its certificate and key, or the key and {secret}, "
            f"do not fit: {error}",
            next_step=f"correct the file, or {secret}",
        ) from error
    except OSError as error:
        raise ConfigError(
            f"{key} = {own}: {error.strerror}",
            next_step="name a PEM file with a certificate and its key that this user may read",
        ) from error
