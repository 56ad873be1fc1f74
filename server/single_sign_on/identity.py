"""The person who logged in, read from claims. Every text in them comes from outside and is bounded here."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from server.single_sign_on.errors import LoginRefused

_NAME_CLAIMS = ("name", "preferred_username", "email", "sub")
_MAX_NAME = 100
_MAX_GROUP = 256
_OVERAGE = (
    "the provider left out the groups because the person is in too many of them: in Entra ID choose under Token "
    "configuration 'Groups assigned to the application', or define app roles and set the groups claim to roles"
)


@dataclass(frozen=True)
class PersonIdentity:
    """A person, as the provider says.

    issuer, subject   who it is: the pair alone names one person for ever
    name              to be shown. Printable, at most 100 characters, chosen by the person
    groups            printable names of groups or roles, at most 256 characters each
    """

    issuer: str
    subject: str
    name: str
    groups: tuple[str, ...]


def has_name(claims: Mapping[str, Any]) -> bool:
    """Return whether one of the claims is meant to be a name."""
    return any(claims.get(claim) for claim in _NAME_CLAIMS if claim != "sub")


def name_of(claims: Mapping[str, Any]) -> str:
    """Return the first name among the claims that has a visible character, on one line and cut to 100 characters."""
    for claim in _NAME_CLAIMS:
        text = claims.get(claim)
        if isinstance(text, str) and (name := _one_line(text)):
            return name
    raise LoginRefused("invalid-token", "the provider's ID token is not accepted: it does not say who logged in")


def _one_line(text: str) -> str:
    # Control and format characters, surrogates and what no standard assigns, but not line ends.
    visible = (each for each in text[: 10 * _MAX_NAME] if each.isspace() or unicodedata.category(each)[0] != "C")
    return " ".join("".join(visible).split())[:_MAX_NAME].rstrip()


def groups_of(claims: Mapping[str, Any], path: str) -> tuple[str, ...] | None:
    """Return the groups at a claim, or None without that claim.

    Args:
        path: The claim's name, or names of objects and of the claim in them with dots between. The whole is tried
            first, because names of claims may be addresses.

    Raises:
        LoginRefused: `unclear-groups`. The claim is no list of names, or Entra ID left it out as too long.
    """
    groups = _at(claims, path)
    if groups is None:
        if _are_left_out(claims, path):
            raise LoginRefused("unclear-groups", _OVERAGE)
        return None
    if isinstance(groups, str):
        groups = [groups]
    if not isinstance(groups, list) or not all(isinstance(group, str) for group in cast(list[Any], groups)):
        raise LoginRefused(
            "unclear-groups",
            f"the claim {path} of the provider is not a list of names: set the groups claim to one that is",
        )
    # Others are in no file of grants, and no text of a database.
    return tuple(group for group in cast(list[str], groups) if group.isprintable() and 0 < len(group) <= _MAX_GROUP)


def _are_left_out(claims: Mapping[str, Any], path: str) -> bool:
    elsewhere = claims.get("_claim_names")
    return claims.get("hasgroups") is True or (isinstance(elsewhere, dict) and path in elsewhere)


def _at(claims: Mapping[str, Any], path: str) -> Any:
    if path in claims:
        return claims[path]
    head, _, rest = path.partition(".")
    inner = claims.get(head)
    return _at(cast(dict[str, Any], inner), rest) if rest and isinstance(inner, dict) else None
