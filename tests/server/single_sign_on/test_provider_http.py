"""Providers that are away, slow, too large, or elsewhere."""

from __future__ import annotations

import asyncio
import gzip
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from server.single_sign_on.errors import ProviderUnavailable, SingleSignOnMisconfigured
from server.single_sign_on.provider_http import ProviderHttp
from tests.factories.identity_provider import IdentityProvider
from tests.factories.tls import certificate, tls_server


def get(address: str, **options: float) -> None:
    asyncio.run(ProviderHttp(**options).get(address))  # pyright: ignore[reportArgumentType]


@contextmanager
def dripping(raw: bytes) -> Iterator[str]:
    """A server that sends its answer byte by byte and never ends."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ended = threading.Event()

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65536)
                for byte in raw * 1000:
                    if ended.wait(0.02):
                        return
                    connection.sendall(bytes([byte]))

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
        ended.set()
        thread.join()


@pytest.mark.parametrize("raw", [b"H", b"HTTP/1.1 200 OK\r\n\r\n{"], ids=["no head", "no end"])
def test_a_provider_that_never_ends_its_answer_is_left(raw: bytes) -> None:
    with dripping(raw) as address, pytest.raises(ProviderUnavailable, match="within"):
        get(address, seconds=0.3)


def test_a_provider_that_does_not_listen_is_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with pytest.raises(ProviderUnavailable, match="reached"):
        get(f"http://127.0.0.1:{port}/")


@pytest.mark.parametrize("status", [500, 502, 503, 429])
def test_a_provider_with_a_fault_is_unavailable(provider: IdentityProvider, status: int) -> None:
    provider.answers["/x"] = (status, {"error": "secret"}, {})
    with pytest.raises(ProviderUnavailable, match="later") as error:
        get(f"{provider.issuer}/x")
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(provider: IdentityProvider, status: int) -> None:
    provider.answers["/x"] = (status, "", {"Location": f"{provider.issuer}/jwks"})
    with pytest.raises(ProviderUnavailable, match="redirect"):
        get(f"{provider.issuer}/x")
    assert provider.requests["/jwks"] == 0


def test_a_large_answer_is_not_read_to_its_end(provider: IdentityProvider) -> None:
    provider.answers["/x"] = (200, b"{" + b" " * 100_000 + b"}", {})
    with pytest.raises(ProviderUnavailable, match="more than 1000 bytes"):
        get(f"{provider.issuer}/x", max_bytes=1000)


def test_a_packed_answer_is_refused(provider: IdentityProvider) -> None:
    provider.answers["/x"] = (200, gzip.compress(b"{}"), {"Content-Encoding": "gzip"})
    with pytest.raises(ProviderUnavailable, match="packed"):
        get(f"{provider.issuer}/x")


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b'"text"', b"\xff", b'{"a":1,"a":2}', b'{"a":' * 50_000], ids=len
)
def test_an_answer_that_is_no_object_is_refused(provider: IdentityProvider, body: bytes) -> None:
    provider.answers["/x"] = (200, body, {})
    with pytest.raises(ProviderUnavailable, match="JSON object"):
        get(f"{provider.issuer}/x")


def test_no_cookie_of_the_provider_is_kept(provider: IdentityProvider) -> None:
    provider.answers["/x"] = (200, {}, {"Set-Cookie": "session=person; Path=/"})
    http = ProviderHttp()
    asyncio.run(http.get(f"{provider.issuer}/x"))
    assert not http._client.cookies  # pyright: ignore[reportPrivateUsage]


def test_a_certificate_of_an_unknown_authority_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = certificate(tmp_path / "id.pem")
    with tls_server(authority) as port:
        with pytest.raises(ProviderUnavailable, match="certificate"):
            get(f"https://localhost:{port}/")
        # With the hospital's own authority the server is asked, and has nothing to say.
        monkeypatch.setenv("SSL_CERT_FILE", str(authority))
        with pytest.raises(ProviderUnavailable, match="JSON object"):
            get(f"https://localhost:{port}/")


def test_requests_go_through_the_proxy_of_the_environment(
    provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.answers["/x"] = (200, {"through": "proxy"}, {})
    monkeypatch.setenv("HTTP_PROXY", provider.issuer)
    answer = asyncio.run(ProviderHttp().get("http://provider.invalid/x"))
    assert answer.content == {"through": "proxy"}


@pytest.mark.parametrize(("name", "text"), [("HTTPS_PROXY", "nonsense://x"), ("SSL_CERT_FILE", "/no/such/file")])
def test_an_environment_that_cannot_be_used_is_named(name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, text)
    with pytest.raises(SingleSignOnMisconfigured, match=name):
        ProviderHttp()
