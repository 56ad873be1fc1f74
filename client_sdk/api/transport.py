"""Bytes over HTTP. This is the only file that knows which HTTP library is used."""

from __future__ import annotations

import ipaddress
import re
import socket
import ssl
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx
from cryptography import x509
from cryptography.x509.oid import NameOID

from client_sdk.api.config import Connection
from client_sdk.errors import ConfigurationError, ConnectionFailed, UnexpectedAnswer

T = TypeVar("T")
NO_COORDINATOR = "this is no Wardround coordinator. Check the address and the port (--server, WARDROUND_SERVER)"
NOT_TRUSTED_HERE = "its certificate is not trusted here"
_KINDS: Mapping[type[BaseException], str] = {
    ssl.SSLCertVerificationError: NOT_TRUSTED_HERE,
    ssl.SSLError: "no TLS is spoken there: is it https, and the right port?",
    socket.gaierror: "no host has this name: check the address",
    ConnectionRefusedError: "nothing listens there: check address and port, and whether it runs",
    httpx.TimeoutException: "no answer in time: check address and port, firewall and proxy",
}
DOCTOR_HINT = ". `wardround doctor` looks for the reason"
DEFAULT_ANSWER_LIMIT = 16 << 20


@dataclass(frozen=True)
class HttpAnswer:
    """Status, headers under lower-case names, and the whole body."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)

    @property
    def request_id(self) -> str | None:
        return self.headers.get("x-request-id")


@dataclass(frozen=True)
class Call(Generic[T]):
    """One request.

    target         path and query
    read           what its answer says
    headers        beside the content's type and who asks
    repeatable     sending it twice does what sending it once does
    signed_once    of a PUT: its token is used once, by this request and by no copy of it
    is_open        the request needs no credentials
    quiet_seconds  is added to the longest silence allowed
    answer_limit   most bytes to accept
    """

    method: str
    target: str
    read: Callable[[HttpAnswer], T]
    body: bytes = field(default=b"", repr=False)
    content_type: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    repeatable: bool = True
    signed_once: bool = False
    open: bool = False
    quiet_seconds: float = 0.0
    answer_limit: int = DEFAULT_ANSWER_LIMIT


def require_safe_url(connection: Connection) -> bool:
    """Whether the coordinator is on this machine.

    Raises:
        ConfigurationError: no http(s) address, credentials inside it, or plain HTTP to another machine.
    """
    parts = urlsplit(connection.url)
    if parts.scheme not in ("http", "https") or not parts.hostname or (parts.query, parts.fragment) != ("", ""):
        raise ConfigurationError("the coordinator's address is https://host[:port]")
    if parts.path not in ("", "/"):
        raise ConfigurationError("the coordinator's address ends with its host or port, without a path behind it")
    if parts.username or parts.password:
        raise ConfigurationError("the coordinator's address holds no user name or password: it is logged by proxies")
    loopback = _is_loopback(parts.hostname)
    if parts.scheme == "http" and not loopback and not connection.allow_http:
        raise ConfigurationError(
            "plain HTTP to another machine is refused: use https://, or allow it knowingly (WARDROUND_ALLOW_HTTP=true)"
        )
    return loopback


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _options(connection: Connection) -> dict[str, Any]:
    loopback = require_safe_url(connection)
    proxy = None if connection.proxy is None else connection.proxy.get_secret_value()
    # Timeouts are given with each request: a long poll may stay silent for longer.
    return {
        "base_url": connection.url,
        "headers": {"Accept-Encoding": "identity"},
        "verify": trust(connection),
        "proxy": proxy,
        # A proxy of the environment could not reach this machine's own loopback.
        "trust_env": not loopback,
        "follow_redirects": False,
    }


def trust(connection: Connection) -> ssl.SSLContext:
    """The system's certificate authorities, and the private one if there is one.

    Raises:
        ConfigurationError: the file is not there or holds no certificate.
    """
    context = ssl.create_default_context()
    if connection.ca_file is not None:
        try:
            context.load_verify_locations(cafile=connection.ca_file)
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(f"{connection.ca_file} is not a PEM file of certificates") from error
    return context


def _request(connection: Connection, call: Call[Any], headers: Mapping[str, str]) -> dict[str, Any]:
    silence = connection.read_seconds + call.quiet_seconds
    return {
        "method": call.method,
        "url": call.target,
        "headers": dict(headers),
        "content": call.body or None,
        "timeout": httpx.Timeout(silence, connect=connection.connect_seconds),
    }


@contextmanager
def _failures(connection: Connection) -> Generator[None]:
    """Raise the library's errors as ConnectionFailed."""
    try:
        yield
    except httpx.RemoteProtocolError as error:
        # A connection that breaks off may be a restart. What is no HTTP at all never becomes a coordinator.
        if _broke_off(error):
            raise ConnectionFailed(_unanswered(error, connection)) from error
        raise UnexpectedAnswer(f"what answers there does not speak HTTP: {NO_COORDINATOR}") from error
    except httpx.HTTPError as error:
        # With these nothing has left, so that even a POST may be sent again.
        kinds = httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout | httpx.ProxyError
        raise ConnectionFailed(_unanswered(error, connection), sent=not isinstance(error, kinds)) from error


def _broke_off(error: httpx.RemoteProtocolError) -> bool:
    message = str(error).lower()
    return "disconnected" in message or "closed connection" in message


def proxy_of(connection: Connection) -> str | None:
    """Return host and port of the proxy that requests go through, without its password, or None."""
    parts = urlsplit(connection.url)
    if connection.proxy is not None:
        address = connection.proxy.get_secret_value()
    elif _is_loopback(parts.hostname or "") or proxy_bypass(parts.hostname or ""):
        return None
    else:
        proxies = getproxies()
        address = proxies.get(parts.scheme) or proxies.get("all")
    if not address:
        return None
    proxy = urlsplit(address if "://" in address else f"//{address}")
    return f"{proxy.hostname}:{proxy.port}" if proxy.port else str(proxy.hostname)


def _unanswered(error: Exception, connection: Connection) -> str:
    # The library's text may quote a proxy's address with its password: only the kind of failure is passed on.
    proxy = proxy_of(connection)
    if proxy is not None and (fault := _of_proxy(error)) is not None:
        return f"the proxy {proxy} {fault}. Ask your IT for the proxy to use (HTTPS_PROXY, NO_PROXY){DOCTOR_HINT}"
    return f"the coordinator did not answer ({_kind(error)}){DOCTOR_HINT}"


def _of_proxy(error: Exception) -> str | None:
    """Return what went wrong on the way to a proxy, or None for a failure behind it."""
    if isinstance(error, httpx.ProxyError):
        status = re.match(r"[0-9]{3}", str(error))
        wants = "asks for a user name and password, or for other ones" if status and status[0] == "407" else "refuses"
        return f"{wants} ({status[0] if status else 'no status'})"
    # Through a proxy only the way to the proxy itself is a matter of names and ports here.
    causes = _causes(error)
    faults = {socket.gaierror: "has no known name", ConnectionRefusedError: "does not listen there"}
    texts = (text for kind, text in faults.items() if any(isinstance(cause, kind) for cause in causes))
    return next(texts, "does not answer in time" if isinstance(error, httpx.ConnectTimeout) else None)


def _causes(error: BaseException) -> list[BaseException]:
    """Return the error and all that it comes from, the outermost first."""
    causes: list[BaseException] = []
    current_error: BaseException | None = error
    while current_error is not None and current_error not in causes:
        causes.append(current_error)
        current_error = current_error.__cause__ or current_error.__context__
    return causes


def _kind(error: BaseException) -> str:
    """Return the finding of the operating system or of TLS where it is known, else the library's name of it."""
    causes = _causes(error)
    for kind, words in _KINDS.items():
        cause = next((cause for cause in causes if isinstance(cause, kind)), None)
        if cause is not None:
            return f"{words}{_of_certificate(cause)}, {type(error).__name__}"
    return type(error).__name__


def _of_certificate(error: BaseException) -> str:
    """Why it is not trusted, as TLS says it: a date or another host's name is no matter of the authority."""
    if not isinstance(error, ssl.SSLCertVerificationError):
        return ""
    message = str(getattr(error, "verify_message", "")).rstrip(".")
    if "expired" in message or "not yet valid" in message:
        return f": {message}, compare its dates with this machine's clock"
    if "mismatch" in message:
        return f": {message}, check the address"
    own_signed = (
        "WARDROUND_CA_FILE names a private authority, also that of a firewall that opens TLS: ask your IT for its file"
    )
    return f"{': ' + message if message else ''}, {own_signed}"


def _add(body: bytearray, part: bytes, call: Call[Any]) -> None:
    """Collect an answer's body, up to its limit."""
    body += part
    if len(body) > call.answer_limit:
        raise UnexpectedAnswer(f"the answer is longer than the {call.answer_limit} bytes that are expected")


def _is_packed(response: httpx.Response) -> bool:
    """A few bytes of such a body could unpack to more than the limit before a part is counted, so it stays unread.

    An error keeps its status: a proxy that packs its "try again later" must not end a hospital's round.
    """
    packed = response.headers.get("content-encoding", "identity") != "identity"
    if packed and response.is_success:
        detail = "the answer is compressed, which was not asked for"
        raise UnexpectedAnswer(detail, response.headers.get("x-request-id"))
    return packed


def _answer(response: httpx.Response, body: bytearray) -> HttpAnswer:
    return HttpAnswer(response.status_code, {k.lower(): v for k, v in response.headers.items()}, bytes(body))


class Transport:
    """A transport that blocks. `handler` replaces the network (tests, in-process servers).

    Raises ConfigurationError for an address that must not be used. `send` raises ConnectionFailed or UnexpectedAnswer.
    """

    def __init__(self, connection: Connection, *, handler: httpx.BaseTransport | None = None) -> None:
        self._connection, self._handler = connection, handler
        self._http = httpx.Client(transport=handler, **_options(connection))

    def send(self, call: Call[Any], headers: Mapping[str, str]) -> HttpAnswer:
        body = bytearray()
        # Streamed, so that a body beyond its limit is cut off before it is held.
        with _failures(self._connection), self._http.stream(**_request(self._connection, call, headers)) as response:
            if not _is_packed(response):
                for part in response.iter_bytes():
                    _add(body, part, call)
            return _answer(response, body)

    def certificate_issuer(self) -> str | None:
        """Return who issued the certificate that is shown under the coordinator's address, trusted or not.

        One request for `/livez` without credentials is sent. None: no TLS is spoken, or no answer came.
        """
        context = trust(self._connection)
        # The name of an issuer that is not trusted is what a person has to see. No secret is sent here.
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        options: dict[str, Any] = {**_options(self._connection), "verify": context}
        unverified = httpx.Client(transport=self._handler, **options)
        request = _request(self._connection, Call("GET", "/livez", lambda _: None), {})
        try:
            with unverified, unverified.stream(**request) as response:
                stream = response.extensions.get("network_stream")
                tls = None if stream is None else stream.get_extra_info("ssl_object")
                der = None if tls is None else tls.getpeercert(True)
        except httpx.HTTPError:
            return None
        return None if der is None else _issuer_in_words(der)

    def close(self) -> None:
        self._http.close()


def _issuer_in_words(der: bytes) -> str:
    try:
        certificate = x509.load_der_x509_certificate(der)
        issuer, is_own = certificate.issuer, certificate.issuer == certificate.subject
    except ValueError:
        return "unknown: the certificate cannot be read"
    kinds = (NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME)
    names = [str(entry.value) for kind in kinds for entry in issuer.get_attributes_for_oid(kind)]
    return f"{', '.join(names) or issuer.rfc4514_string() or 'no name'}{' (the certificate itself)' if is_own else ''}"


class AsyncTransport:
    """The same without blocking."""

    def __init__(self, connection: Connection, *, handler: httpx.AsyncBaseTransport | None = None) -> None:
        self._connection = connection
        self._http = httpx.AsyncClient(transport=handler, **_options(connection))

    async def send(self, call: Call[Any], headers: Mapping[str, str]) -> HttpAnswer:
        body = bytearray()
        with _failures(self._connection):
            async with self._http.stream(**_request(self._connection, call, headers)) as response:
                if not _is_packed(response):
                    async for part in response.aiter_bytes():
                        _add(body, part, call)
                return _answer(response, body)

    async def close(self) -> None:
        await self._http.aclose()
