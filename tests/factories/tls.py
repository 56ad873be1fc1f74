"""A server that speaks TLS on this machine, with a certificate of its own."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID


def certificate(path: Path, *, host: str = "localhost", ended_days_ago: float = -1.0) -> Path:
    """A certificate for `host` with its key in one file, its own authority; it was made ten days before its end."""
    key, end = Ed25519PrivateKey.generate(), datetime.now(UTC) - timedelta(days=ended_days_ago)
    name = _name(host)
    made = _builder(name, name, key, end, host).sign(key, None)
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(secret + made.public_bytes(Encoding.PEM))
    return path


def issued_certificate(folder: Path, issuer: str, organisation: str, *, host: str = "localhost") -> tuple[Path, Path]:
    """A certificate with its key, and the file of the authority that issued it."""
    key, end = Ed25519PrivateKey.generate(), datetime.now(UTC) + timedelta(days=1)
    authority = Ed25519PrivateKey.generate()
    name = _name(issuer, organisation)
    root = x509.CertificateBuilder(name, name, authority.public_key(), x509.random_serial_number())
    root = root.not_valid_before(end - timedelta(days=10)).not_valid_after(end)
    root = root.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    made = _builder(name, _name(host), key, end, host).sign(authority, None)
    leaf, trusted = folder / "leaf.pem", folder / "authority.pem"
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    leaf.write_bytes(secret + made.public_bytes(Encoding.PEM))
    trusted.write_bytes(root.sign(authority, None).public_bytes(Encoding.PEM))
    return leaf, trusted


def _name(common: str, organisation: str | None = None) -> x509.Name:
    more = [] if organisation is None else [x509.NameAttribute(NameOID.ORGANIZATION_NAME, organisation)]
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common), *more])


def _builder(
    issuer: x509.Name, subject: x509.Name, key: Ed25519PrivateKey, end: datetime, host: str
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(end - timedelta(days=10))
        .not_valid_after(end)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
    )


@contextmanager
def tls_server(certificate: Path) -> Generator[int]:
    """Its port on localhost; whoever finishes the handshake gets an empty answer."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = threading.Thread(target=_serve, args=(listening, context), daemon=True)
        serving.start()
        yield listening.getsockname()[1]


def _serve(listening: socket.socket, context: ssl.SSLContext) -> None:
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            return
        try:
            with context.wrap_socket(connection, server_side=True) as spoken:
                spoken.recv(65536)
                spoken.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
        except OSError:
            # The peer did not trust it.
            connection.close()
