"""An identity provider of another maker than Authlib: idpyoidc's server, behind Flask."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import flask
from idpyoidc.server import Server
from idpyoidc.server.configure import OPConfiguration

from tests.factories.identity_provider import ADA, BACK, CLIENT, SECRET, served

_ENCRYPTION = {
    "kwargs": {
        "keys": {"key_defs": [{"type": "OCT", "use": ["enc"], "kid": kid} for kid in ("password", "salt")]},
        "iterations": 1,
    }
}
_SIGNING = [{"type": "RSA", "use": ["sig"]}, {"type": "EC", "crv": "P-256", "use": ["sig"]}]
_ENDPOINTS = {
    "provider_config": (".well-known/openid-configuration", "provider_config.ProviderConfiguration"),
    "authorization": ("authorization", "authorization.Authorization"),
    "token": ("token", "token.Token"),
    "userinfo": ("userinfo", "userinfo.UserInfo"),
}


def _configuration(issuer: str) -> dict[str, Any]:
    proofs = {"token": ["client_secret_basic", "client_secret_post"], "userinfo": ["bearer_header"]}
    return {
        "issuer": issuer,
        "key_conf": {"uri_path": "jwks.json", "key_defs": _SIGNING},
        "endpoint": {
            name: {
                "path": path,
                "class": f"idpyoidc.server.oidc.{place}",
                "kwargs": {"client_authn_method": proofs.get(name)},
            }
            for name, (path, place) in _ENDPOINTS.items()
        },
        "authentication": {
            "known": {
                "acr": "urn:oasis:names:tc:SAML:2.0:ac:classes:InternetProtocolPassword",
                "class": "idpyoidc.server.user_authn.user.NoAuthn",
                "kwargs": {"user": ADA["sub"]},
            }
        },
        "userinfo": {"class": "idpyoidc.server.user_info.UserInfo", "kwargs": {"db": {ADA["sub"]: ADA}}},
        "token_handler_args": {
            "code": {"kwargs": {"crypt_conf": _ENCRYPTION}},
            "token": {"class": "idpyoidc.server.token.jwt_token.JWTToken", "kwargs": {}},
            "id_token": {"class": "idpyoidc.server.token.id_token.IDToken", "kwargs": {}},
        },
        "scopes_to_claims": {"openid": ["sub"], "profile": ["name"], "groups": ["groups"], "email": ["email"]},
        "session_params": {"encrypter": _ENCRYPTION},
        "add_on": {
            "pkce": {
                "function": "idpyoidc.server.oauth2.add_on.pkce.add_support",
                "kwargs": {"essential": True, "code_challenge_method": "S256"},
            }
        },
    }


def _app(home: Path) -> tuple[flask.Flask, list[Server]]:
    app, running = flask.Flask("idpyoidc_provider"), list[Server]()

    @app.route("/<path:path>", methods=["GET", "POST"])
    def answer(path: str) -> flask.Response:
        (server,) = running
        if path == "jwks.json":
            return flask.jsonify(flask.json.loads(server.keyjar.export_jwks_as_json()))
        endpoint = next(each for each in server.endpoint.values() if each.endpoint_path == path)
        request = flask.request
        http = {"headers": {name.lower(): text for name, text in request.headers}, "method": request.method}
        parsed = endpoint.parse_request(request.values.to_dict(), http_info=http)
        done = parsed if "error" in parsed else endpoint.process_request(parsed, http_info=http)
        if "error" in done:
            return flask.make_response(flask.jsonify(done.to_dict() if hasattr(done, "to_dict") else done), 400)
        said = endpoint.do_response(request=parsed, **done)
        if path == "authorization":
            return flask.redirect(said["response"])
        return flask.Response(said["response"], content_type="application/json")

    return app, running


@contextmanager
def idpyoidc_provider(home: Path) -> Generator[str]:
    """Serve a provider with one person and one client, and yield its issuer."""
    app, running = _app(home)
    with served(app) as issuer:
        server = Server(OPConfiguration(_configuration(issuer), base_path=str(home)), cwd=str(home))
        server.context.cdb[CLIENT] = {
            "client_secret": SECRET,
            "redirect_uris": [(BACK, {})],
            "token_endpoint_auth_method": "client_secret_basic",
            "response_types_supported": ["code"],
            "allowed_scopes": ["openid", "profile", "email", "groups"],
        }
        running.append(server)
        yield issuer
