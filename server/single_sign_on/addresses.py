"""Addresses that the coordinator may ask, or send a browser to."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import SplitResult, urlsplit

_PLAIN = re.compile(r"[!-~]{1,2000}")


def is_provider_address(address: str, *, loopback: bool) -> bool:
    """Return whether this is an https address without a password and a fragment.

    Args:
        loopback: http is accepted, too, for addresses of this machine.
    """
    parts = _split(address)
    if parts is None or not parts.hostname or parts.fragment or "@" in parts.netloc or "\\" in address:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and loopback and _is_this_machine(parts.hostname))


def is_loopback(address: str) -> bool:
    """Return whether an address is plain http on this machine, as in a test."""
    parts = _split(address)
    return parts is not None and parts.scheme == "http" and _is_this_machine(parts.hostname or "")


def _split(address: str) -> SplitResult | None:
    if _PLAIN.fullmatch(address) is None:
        return None
    try:
        parts = urlsplit(address)
        # Read for its check: a port that is no number, or beyond 65535, raises.
        _ = parts.port
    except ValueError:
        return None
    return parts


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
