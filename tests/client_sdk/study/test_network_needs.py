"""What the page for a hospital's IT says of address, port, proxy and certificate."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from client_sdk.api.config import ClientSettings, Connection
from client_sdk.api.transport import Transport
from client_sdk.errors import ConfigurationError
from client_sdk.study.network_needs import NetworkNeeds, network_needs
from tests.factories.tls import issued_certificate, tls_server


def needs(server: str | None, home: Path = Path("nowhere")) -> NetworkNeeds:
    def dial(connection: Connection) -> Transport:
        return Transport(connection, handler=httpx.MockTransport(lambda _: httpx.Response(204)))

    return network_needs(ClientSettings(client_home=home, server=server), transport=dial)


@pytest.mark.parametrize(
    ("url", "port"), [("https://study.example.org", "443"), ("https://study.example.org:8443", "8443")]
)
def test_one_address_out_and_none_in(monkeypatch: pytest.MonkeyPatch, url: str, port: str) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    found = needs(url)
    assert [rule[:3] for rule in found.rules] == [
        ("out", "study.example.org", port),
        ("out", "your resolver", "53"),
        ("out", "your time server", "123"),
        ("in", "none", "-"),
    ]
    assert "not seen: no TLS answer came" in found.remarks[0]


def test_behind_a_proxy_the_proxy_is_named_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://user:hunter2@proxy.example:3128")
    monkeypatch.delenv("NO_PROXY", raising=False)
    found = needs("https://study.example.org")
    assert found.rules[0][:4] == ("out", "proxy.example", "3128", "TCP, HTTP CONNECT")
    assert found.rules[1][:3] == ("out of the proxy", "study.example.org", "443")
    assert "hunter2" not in repr(found)


def test_the_issuer_of_the_certificate_is_named(tmp_path: Path) -> None:
    leaf, _ = issued_certificate(tmp_path, "Web Gateway CA", "St. Mercy IT")
    with tls_server(leaf) as port:
        found = network_needs(ClientSettings(server=f"https://localhost:{port}"))
    assert "issued by Web Gateway CA, St. Mercy IT, as seen from here" in found.remarks[0]


def test_an_address_is_needed(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="which coordinator"):
        needs(None, tmp_path)
