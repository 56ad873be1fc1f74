"""The needs of a hospital in its network, as a table for its IT."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from client_sdk.api.calls import POLL_SECONDS
from client_sdk.api.config import ClientSettings, Connection
from client_sdk.api.transport import Transport, proxy_of, require_safe_url
from client_sdk.study.diagnostics import enrolled_server
from study_protocol.wire.signing import TOKEN_LIFETIME_SECONDS

HEADS = ("direction", "to", "port", "protocol", "purpose")
_DEFAULT_PORTS = {"https": 443, "http": 80}


@dataclass(frozen=True)
class NetworkNeeds:
    """rules: one row for each connection, as `heads` names its cells. remarks: sentences for IT."""

    heads: tuple[str, ...]
    rules: tuple[tuple[str, ...], ...]
    remarks: tuple[str, ...]


def network_needs(
    settings: ClientSettings,
    *,
    server: str | None = None,
    home: Path | None = None,
    transport: Callable[[Connection], Transport] = Transport,
) -> NetworkNeeds:
    """Return what the way to the coordinator needs. One request without credentials looks at the certificate.

    Raises:
        ConfigurationError: no address is known, or it must not be used.
    """
    address = server or settings.server or enrolled_server(home or settings.client_home)
    connection = settings.connection(address, patience_seconds=0)
    require_safe_url(connection)
    parts, proxy = urlsplit(connection.url), proxy_of(connection)
    host, port = parts.hostname or "", str(parts.port or _DEFAULT_PORTS[parts.scheme])
    spoken = "HTTP over TLS 1.2 or newer" if parts.scheme == "https" else "HTTP without TLS (laboratories only)"
    rules = [("out", host, port, f"TCP, {spoken}", "all messages of studies")]
    if proxy is not None:
        proxy_host, _, proxy_port = proxy.rpartition(":") if ":" in proxy else (proxy, "", "80")
        rules = [
            ("out", proxy_host, proxy_port, "TCP, HTTP CONNECT", f"the proxy, which connects to {host}:{port}"),
            ("out of the proxy", *rules[0][1:]),
        ]
    rules += [
        ("out", "your resolver", "53", "UDP and TCP, DNS", f"the name {host if proxy is None else 'of the proxy'}"),
        ("out", "your time server", "123", "UDP, NTP", f"a clock right to {TOKEN_LIFETIME_SECONDS // 2} seconds"),
        ("in", "none", "-", "-", "this machine opens no port"),
    ]
    with closing(transport(connection)) as dialled:
        issuer = dialled.certificate_issuer()
    return NetworkNeeds(HEADS, tuple(rules), _remarks(connection, issuer, host))


def _remarks(connection: Connection, issuer: str | None, host: str) -> tuple[str, ...]:
    trusted = "this machine's authorities" if connection.ca_file is None else f"these and {connection.ca_file}"
    seen = "not seen: no TLS answer came from here" if issuer is None else f"issued by {issuer}, as seen from here"
    return (
        f"certificate: {seen}. The program trusts {trusted}.",
        f"TLS inspection: make an exception for {host}. Otherwise WARDROUND_CA_FILE names your authority.",
        f"silence: an answer may take {POLL_SECONDS:g} seconds. Proxies and firewalls wait 60 seconds.",
        "requests: GET, PUT and POST with the header Authorization, unchanged, as they are signed. An upload is as "
        "large as the study's model.",
        "installation: once TCP 443 to pypi.org, files.pythonhosted.org and download.pytorch.org, or to your mirror.",
        "no other connection is made. No data of use is sent.",
    )
