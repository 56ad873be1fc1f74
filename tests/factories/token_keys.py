"""Keys of an identity provider, and what a forger makes of them."""

from __future__ import annotations

from functools import cache

from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey
from joserfc.util import urlsafe_b64encode


@cache
def rsa_key(kid: str) -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": kid, "use": "sig"})


def ec_key(kid: str, curve: str = "P-256") -> ECKey:
    return ECKey.generate_key(curve, {"kid": kid, "use": "sig"})


def ed_key(kid: str) -> OKPKey:
    return OKPKey.generate_key("Ed25519", {"kid": kid, "use": "sig"})


def public_pem_as_secret(key: RSAKey, kid: str) -> OctKey:
    """What a forger has who signs with HS256 and the provider's public key."""
    pem = urlsafe_b64encode(key.as_pem(private=False)).decode()
    return OctKey(key.as_pem(private=False), {"kty": "oct", "k": pem, "kid": kid})
