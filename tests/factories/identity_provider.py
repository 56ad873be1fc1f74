"""An identity provider on this machine, from Authlib's server classes: code flow with PKCE, device flow, and faults."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
import warnings
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlencode, urlsplit

import flask
import httpx
from authlib.integrations.flask_oauth2 import AuthorizationServer
from authlib.oauth2.rfc6749 import AuthorizationCodeMixin, ClientMixin, OAuth2Request
from authlib.oauth2.rfc6749.grants import AuthorizationCodeGrant
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oauth2.rfc8628 import DeviceAuthorizationEndpoint, DeviceCodeGrant, DeviceCredentialDict
from authlib.oauth2.rfc9207 import IssuerParameter
from authlib.oidc.core import OpenIDCode, OpenIDToken
from authlib.oidc.core.util import create_half_hash
from joserfc import jwt
from joserfc.jwk import Key
from joserfc.jws import JWSRegistry
from werkzeug.serving import WSGIRequestHandler, make_server

from server.single_sign_on.identity import PersonIdentity
from server.single_sign_on.provider import Provider
from server.single_sign_on.provider_http import ProviderHttp
from server.single_sign_on.settings import SingleSignOnSettings
from tests.factories.token_keys import rsa_key

CLIENT, SECRET = "wardround", "s3cret-of-the-coordinator"
PUBLIC_CLIENT = "wardround-cli"
ADA: dict[str, Any] = {"sub": "ada-1", "name": "Ada Example", "groups": ["leads"]}


@dataclass
class IdentityProvider:
    """A provider whose answers a test changes while it runs.

    person       claims of who is logged in at the provider's browser pages. None: nobody agrees
    key, alg     what signs ID tokens. published: the keys that it shows
    claims       replaces claims of ID tokens. A claim with the value None is left out
    header       adds to the header of ID tokens
    id_token     is sent instead of a new one
    metadata     replaces entries of its description. None leaves an entry out
    userinfo     replaces entries of the person's description
    answers      path -> what it answers instead: status, body, headers
    """

    issuer: str = ""
    secret: str | None = SECRET
    person: dict[str, Any] | None = field(default_factory=lambda: dict(ADA))
    key: Key = field(default_factory=lambda: rsa_key("first"))
    alg: str = "RS256"
    published: list[Key] = field(default_factory=list)
    claims: dict[str, Any] = field(default_factory=dict)
    header: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    userinfo: dict[str, Any] = field(default_factory=dict)
    answers: dict[str, tuple[int, Any, dict[str, str]]] = field(default_factory=dict)
    id_token: str | None = None
    slow_down: bool = False
    code_seconds: float = 60.0
    requests: Counter[str] = field(default_factory=Counter)
    forms: list[dict[str, str]] = field(default_factory=list)
    codes: dict[str, Code] = field(default_factory=dict)
    devices: dict[str, DeviceCredentialDict] = field(default_factory=dict)
    decisions: dict[str, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.published = self.published or [self.key]

    def decide(self, user_code: str, *, agreed: bool) -> None:
        """The person answers at the page that the command line shows."""
        self.decisions[user_code] = agreed

    def description(self) -> dict[str, Any]:
        entries = {
            "issuer": self.issuer,
            **{f"{name}_endpoint": f"{self.issuer}/{name}" for name in ("authorization", "token", "userinfo")},
            "end_session_endpoint": f"{self.issuer}/logout?realm=test",
            "device_authorization_endpoint": f"{self.issuer}/device_authorization",
            "jwks_uri": f"{self.issuer}/jwks",
            "id_token_signing_alg_values_supported": ["RS256", "PS256", "ES256", "EdDSA"],
            "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post"],
            "authorization_response_iss_parameter_supported": True,
        }
        return {name: entry for name, entry in (entries | self.metadata).items() if entry is not None}


@dataclass
class Code(AuthorizationCodeMixin):
    """A code that was given to the coordinator."""

    request: dict[str, str]
    person: dict[str, Any]
    ends_at: float

    @property
    def code_challenge(self) -> str | None:
        return self.request.get("code_challenge")

    @property
    def code_challenge_method(self) -> str | None:
        return self.request.get("code_challenge_method")

    def get_redirect_uri(self) -> str:
        return self.request["redirect_uri"]

    def get_scope(self) -> str:
        return self.request["scope"]

    def get_nonce(self) -> str | None:
        return self.request.get("nonce")

    def get_auth_time(self) -> None: ...
    def get_acr(self) -> None: ...
    def get_amr(self) -> None: ...


@dataclass
class _Client(ClientMixin):
    name: str
    secret: str | None

    def get_client_id(self) -> str:
        return self.name

    def get_default_redirect_uri(self) -> None: ...

    def get_allowed_scope(self, scope: str) -> str:
        return scope

    def check_redirect_uri(self, redirect_uri: str) -> bool:
        return redirect_uri.endswith("/sso/back")

    def check_client_secret(self, client_secret: str) -> bool:
        return self.secret is not None and secrets.compare_digest(client_secret, self.secret)

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return (method == "none") == (self.secret is None)

    def check_response_type(self, response_type: str) -> bool:
        return response_type == "code"

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type in ("authorization_code", DeviceCodeGrant.GRANT_TYPE)


class _IdTokens:
    """Beside Authlib's extensions for both flows: tokens with what a test changes in them."""

    provider: IdentityProvider

    def get_client_claims(self, client: _Client) -> dict[str, Any]:
        return {"iss": self.provider.issuer, "aud": [client.name]}

    def exists_nonce(self, nonce: str, request: OAuth2Request) -> bool:
        return False

    def encode_id_token(self: Any, token: dict[str, Any], request: OAuth2Request) -> str:
        provider = self.provider
        if provider.id_token is not None:
            return provider.id_token
        claims = self.get_compatible_claims(request)
        if request.authorization_code:
            claims |= self.get_authorization_code_claims(request.authorization_code)
        if half := create_half_hash(token["access_token"], provider.alg):
            claims["at_hash"] = half.decode()
        claims |= request.user | provider.claims
        header = {"alg": provider.alg, "kid": provider.key.kid} | provider.header
        header, claims = ({name: each for name, each in part.items() if each is not None} for part in (header, claims))
        registry = JWSRegistry(algorithms=[provider.alg], strict_check_header=False)
        with warnings.catch_warnings():
            # `none`, EdDSA and short keys are warned of.
            warnings.simplefilter("ignore")
            return jwt.encode(header, claims, provider.key, registry=registry)


class _CodeTokens(_IdTokens, OpenIDCode): ...


class _DeviceTokens(_IdTokens, OpenIDToken): ...


def _code_grant(provider: IdentityProvider) -> type[AuthorizationCodeGrant]:
    class CodeGrant(AuthorizationCodeGrant):
        TOKEN_ENDPOINT_AUTH_METHODS: ClassVar = ["client_secret_basic", "client_secret_post", "none"]

        def save_authorization_code(self, code: str, request: OAuth2Request) -> Code:
            ends_at = time.monotonic() + provider.code_seconds
            return provider.codes.setdefault(code, Code(dict(request.payload.data), request.user, ends_at))

        def query_authorization_code(self, code: str, client: _Client) -> Code | None:
            known = provider.codes.get(code)
            return (
                known
                if known and known.request["client_id"] == client.name and known.ends_at > time.monotonic()
                else None
            )

        def delete_authorization_code(self, authorization_code: Code) -> None:
            provider.codes = {name: each for name, each in provider.codes.items() if each is not authorization_code}

        def authenticate_user(self, authorization_code: Code) -> dict[str, Any]:
            return authorization_code.person

    return CodeGrant


def _device_grant(provider: IdentityProvider) -> type[DeviceCodeGrant]:
    class DeviceGrant(DeviceCodeGrant):
        def query_device_credential(self, device_code: str) -> DeviceCredentialDict | None:
            return provider.devices.get(device_code)

        def query_user_grant(self, user_code: str) -> tuple[dict[str, Any], bool] | None:
            agreed = provider.decisions.get(user_code)
            return None if agreed is None else (provider.person or {}, agreed)

        def should_slow_down(self, credential: DeviceCredentialDict) -> bool:
            return provider.slow_down

    return DeviceGrant


def _device_endpoint(provider: IdentityProvider) -> type[DeviceAuthorizationEndpoint]:
    class DeviceEndpoint(DeviceAuthorizationEndpoint):
        def get_verification_uri(self) -> str:
            return f"{provider.issuer}/device"

        def save_device_credential(self, client_id: str, scope: str, data: dict[str, Any]) -> None:
            ends_at = time.time() + data["expires_in"]
            provider.devices[data["device_code"]] = DeviceCredentialDict(
                client_id=client_id, scope=scope, expires_at=ends_at, **data
            )

    return DeviceEndpoint


def provider_app(provider: IdentityProvider) -> flask.Flask:
    app = flask.Flask("identity_provider")
    tokens: dict[str, dict[str, Any]] = {}

    def query_client(name: str) -> _Client | None:
        secret = {CLIENT: provider.secret, PUBLIC_CLIENT: None}
        return _Client(name, secret[name]) if name in secret else None

    def save_token(token: dict[str, Any], request: OAuth2Request) -> None:
        tokens[token["access_token"]] = request.user

    server = AuthorizationServer(app, query_client=query_client, save_token=save_token)
    in_browser, on_device = _CodeTokens(require_nonce=True), _DeviceTokens()
    in_browser.provider = on_device.provider = provider
    server.register_grant(_code_grant(provider), [in_browser, CodeChallenge(required=True)])
    server.register_grant(_device_grant(provider), [on_device])
    server.register_endpoint(_device_endpoint(provider))
    issuer = IssuerParameter()
    issuer.get_issuer = lambda: provider.issuer
    server.register_extension(issuer)

    @app.before_request
    def answer_instead() -> flask.Response | None:
        path = flask.request.path
        provider.requests[path] += 1
        provider.forms.append(flask.request.form.to_dict())
        if path not in provider.answers:
            return None
        status, body, headers = provider.answers[path]
        return flask.Response(body if isinstance(body, str | bytes) else flask.json.dumps(body), status, headers)

    @app.get("/.well-known/openid-configuration")
    def describe() -> dict[str, Any]:
        return provider.description()

    @app.get("/jwks")
    def show_keys() -> dict[str, Any]:
        return {"keys": [key.as_dict(private=False) for key in provider.published]}

    @app.get("/authorization")
    def log_in() -> flask.Response:
        if provider.person is None:
            back = flask.request.args
            error = {"error": "access_denied", "error_description": "<b>no</b>", "state": back["state"]}
            return flask.redirect(f"{back['redirect_uri']}?{urlencode(error | {'iss': provider.issuer})}")
        return server.create_authorization_response(
            grant_user=provider.person, grant=server.get_consent_grant(end_user=provider.person)
        )

    @app.post("/token")
    def give_token() -> flask.Response:
        return server.create_token_response()

    @app.post("/device_authorization")
    def begin_device() -> flask.Response:
        return server.create_endpoint_response(DeviceAuthorizationEndpoint.ENDPOINT_NAME)

    @app.get("/userinfo")
    def show_person() -> dict[str, Any] | tuple[dict[str, Any], int]:
        person = tokens.get(flask.request.headers.get("Authorization", "").removeprefix("Bearer "))
        return ({"error": "invalid_token"}, 401) if person is None else person | provider.userinfo

    @app.get("/logout")
    def log_out() -> flask.Response:
        return flask.redirect(flask.request.args["post_logout_redirect_uri"])

    return app


@contextmanager
def identity_provider(**changes: Any) -> Generator[IdentityProvider]:
    """Serve a provider on a free port of this machine."""
    provider = IdentityProvider(**changes)
    with served(provider_app(provider)) as address:
        provider.issuer = provider.issuer or address
        yield provider


class _Quiet(WSGIRequestHandler):
    def log_request(self, *_: Any) -> None: ...


@contextmanager
def served(app: Any) -> Generator[str]:
    """Serve a WSGI application in threads and yield its address."""
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=_Quiet)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass
class MovableClock:
    """The time, and how far a test is ahead of it."""

    ahead: float = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


BACK = "http://127.0.0.1:8000/sso/back"


def single_sign_on(provider: IdentityProvider, *, clock: Any = time.time, **changes: Any) -> Provider:
    """The coordinator's side, with settings that fit the provider."""
    settings = {"issuer": provider.issuer, "client_id": CLIENT, "client_secret": provider.secret, **changes}
    return Provider(SingleSignOnSettings(**settings), http=_http(), clock=clock)


@cache
def _http() -> ProviderHttp:
    # Reading certificate authorities takes longer than a login.
    return ProviderHttp()


@cache
def _browser() -> httpx.Client:
    return httpx.Client(trust_env=False)


def log_in(sso: Provider) -> PersonIdentity:
    """A whole login in a browser."""

    async def begin_and_finish() -> PersonIdentity:
        address, pending = await sso.begin(BACK)
        return await sso.finish(pending, log_in_at(address))

    return asyncio.run(begin_and_finish())


def log_in_at(address: str) -> list[tuple[str, str]]:
    """Open an address as a browser does, and return the query with which the provider sends it back."""
    answer = _browser().get(address)
    assert answer.is_redirect, answer.text
    return parse_qsl(urlsplit(answer.headers["Location"]).query)
