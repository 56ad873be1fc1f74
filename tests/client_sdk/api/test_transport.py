import asyncio
import gzip
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from client_sdk.api.config import Connection
from client_sdk.api.transport import AsyncTransport, Call, HttpAnswer, Transport, require_safe_url, trust
from client_sdk.errors import ConfigurationError, ConnectionFailed, UnexpectedAnswer
from tests.factories.tls import certificate, tls_server


def call(method: str, target: str, body: bytes = b"", **more: int) -> Call[HttpAnswer]:
    return Call(method, target, lambda answer: answer, body, **more)  # type: ignore[arg-type]


GET = call("GET", "/v1/x?a=1")
SIGNED = {"Authorization": "Bearer t"}


def test_plain_http_is_for_this_machine_alone() -> None:
    for url in ("http://127.0.0.1:8000", "http://localhost:1", "http://[::1]:8000"):
        assert require_safe_url(Connection(url=url))
    assert not require_safe_url(Connection(url="https://study.example.org"))
    with pytest.raises(ConfigurationError, match="plain HTTP"):
        require_safe_url(Connection(url="http://study.example.org"))
    assert not require_safe_url(Connection(url="http://study.example.org", allow_http=True))


@pytest.mark.parametrize(
    "url", ["study.example.org", "ftp://x", "https://", "https://u:p@x", "https://x/?a=b", "https://x/v1", ""]
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError):
        Transport(Connection(url=url))


@pytest.mark.parametrize(
    ("made", "trusted", "words"),
    [
        ({"ended_days_ago": 1}, True, "certificate has expired, compare its dates with this machine's clock"),
        ({"ended_days_ago": -30}, True, "certificate is not yet valid, compare its dates with this machine's clock"),
        ({"host": "other.example.org"}, True, "not valid for 'localhost', check the address"),
        ({}, False, "self-signed certificate, WARDROUND_CA_FILE names a private authority"),
    ],
    ids=["expired", "not yet valid", "of another host", "of an unknown authority"],
)
def test_why_a_certificate_is_not_trusted_is_said(tmp_path: Path, made: Any, trusted: bool, words: str) -> None:
    shown = certificate(tmp_path / "shown.pem", **made)
    authority = shown if trusted else certificate(tmp_path / "another.pem", host="another.example.org")
    with tls_server(shown) as port:
        connection = Connection(url=f"https://localhost:{port}", ca_file=authority)
        with closing(Transport(connection)) as transport, pytest.raises(ConnectionFailed, match=words):
            transport.send(GET, SIGNED)


def test_a_certificate_that_is_trusted_lets_the_request_through(tmp_path: Path) -> None:
    shown = certificate(tmp_path / "shown.pem")
    with tls_server(shown) as port:
        connection = Connection(url=f"https://localhost:{port}", ca_file=shown)
        with closing(Transport(connection)) as transport:
            assert transport.send(GET, SIGNED).status == 204


def test_a_private_authority_must_be_a_certificate(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    for content in (None, "not a certificate"):
        if content is not None:
            path.write_text(content)
        with pytest.raises(ConfigurationError, match="PEM"):
            trust(Connection(url="https://x", ca_file=path))


def test_both_transports_send_the_same_bytes_and_read_the_same_answer() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(201, content=b"body", headers={"X-Request-Id": "r-7"})

    outgoing, headers = call("PUT", "/v1/%C3%A9?wait=1", b"payload"), {"X-A": "b"}
    connection = Connection(url="https://study.example.org")
    with closing(Transport(connection, handler=httpx.MockTransport(answer))) as blocking:
        first = blocking.send(outgoing, headers)

    async def twin() -> object:
        transport = AsyncTransport(connection, handler=httpx.MockTransport(answer))
        try:
            return await transport.send(outgoing, headers)
        finally:
            await transport.close()

    assert asyncio.run(twin()) == first
    assert (first.status, first.body, first.request_id) == (201, b"body", "r-7")
    assert {(r.method, r.url.raw_path, r.content, r.headers["X-A"]) for r in seen} == {
        ("PUT", b"/v1/%C3%A9?wait=1", b"payload", "b")
    }


def test_a_packed_answer_is_refused_before_it_is_unpacked() -> None:
    asked: list[str] = []

    def handler(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers["accept-encoding"])
        return httpx.Response(200, content=gzip.compress(bytes(1 << 20)), headers={"content-encoding": "gzip"})

    transport = Transport(Connection(url="https://x"), handler=httpx.MockTransport(handler))
    with closing(transport), pytest.raises(UnexpectedAnswer, match="compressed"):
        transport.send(call("GET", "/"), {})
    assert asked == ["identity"]


def test_a_packed_error_keeps_its_status() -> None:
    packed = httpx.Response(503, content=gzip.compress(b"later"), headers={"content-encoding": "gzip"})
    transport = Transport(Connection(url="https://x"), handler=httpx.MockTransport(lambda _: packed))
    with closing(transport):
        answer = transport.send(call("GET", "/"), {})
    assert (answer.status, answer.body) == (503, b"")


def test_an_answer_longer_than_expected_is_cut_off() -> None:
    handler = httpx.MockTransport(lambda _: httpx.Response(200, content=b"x" * 101))
    with closing(Transport(Connection(url="https://x"), handler=handler)) as transport:
        assert len(transport.send(call("GET", "/", answer_limit=101), {}).body) == 101
        with pytest.raises(UnexpectedAnswer, match="100 bytes"):
            transport.send(call("GET", "/", answer_limit=100), {})


@pytest.mark.parametrize(
    ("failure", "sent"),
    [(httpx.ConnectError, False), (httpx.ConnectTimeout, False), (httpx.ReadTimeout, True), (httpx.ReadError, True)],
)
def test_a_failure_says_whether_the_request_left_and_nothing_secret(failure: type[Exception], sent: bool) -> None:
    def fail(request: httpx.Request) -> httpx.Response:
        raise failure("proxy http://user:hunter2@proxy refused")

    transport = Transport(Connection(url="https://x"), handler=httpx.MockTransport(fail))
    with closing(transport), pytest.raises(ConnectionFailed) as caught:
        transport.send(GET, SIGNED)
    assert caught.value.sent is sent
    assert "hunter2" not in str(caught.value)


def test_a_redirect_is_not_followed() -> None:
    handler = httpx.MockTransport(lambda _: httpx.Response(302, headers={"Location": "https://elsewhere.example"}))
    with closing(Transport(Connection(url="https://x"), handler=handler)) as transport:
        assert transport.send(GET, SIGNED).status == 302


def test_nothing_secret_is_in_a_repr() -> None:
    connection = Connection(url="https://x", proxy="http://user:hunter2@proxy:3128")  # type: ignore[arg-type]
    assert "hunter2" not in repr(connection) + repr(call("GET", "/", b"hunter2"))
