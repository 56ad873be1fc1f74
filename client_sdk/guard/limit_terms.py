"""How a hospital's ledger keeps the hospital's own limits: fixed when the first study joins, and then for ever."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self, cast, get_args

from client_sdk.errors import ConfigurationError, LedgerDamaged

LimitRule = Literal["gaussian", "renyi"]
# Of entries that hold the terms. A ledger without such an entry is of an earlier version, or has the default terms.
_VERSION = 1
_UNKNOWN = (
    "is kept by terms that this version of Wardround does not know: install the version that wrote this hospital's "
    "ledger"
)


@dataclass(frozen=True)
class LedgerTerms:
    """The terms of one ledger.

    rule         renyi: a Rényi divergence at one order, which credits sampling. gaussian: Σ Δ²/s² ≤ μ², in which a
                 sampled step counts as one of all patients
    whole_plans  share of ε and δ that is set aside for studies with a fixed plan, admitted whole. The rest of both is
                 for the others. It is fixed beforehand: a share that is chosen after releases would spend δ twice
    """

    rule: LimitRule = "renyi"
    whole_plans: float = 0.0

    @property
    def rest(self) -> float:
        """Share of ε and δ for studies that are charged round by round, rounded down."""
        return math.nextafter(1 - self.whole_plans, 0.0) if self.whole_plans else 1.0

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values for an entry."""
        return {"version": _VERSION, "rule": self.rule, "whole_plans": self.whole_plans}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """Inverse of `to_dict`. Raises LedgerDamaged: it is none, or of a later version."""
        rule, share = value.get("rule"), value.get("whole_plans")
        is_known = value.get("version") == _VERSION and rule in get_args(LimitRule)
        if is_known and isinstance(share, float) and 0 <= share < 1:
            return cls(cast(LimitRule, rule), share)
        raise LedgerDamaged(f"the ledger {_UNKNOWN}")


@dataclass(frozen=True)
class WholePlan:
    """A study that was admitted whole: so much of ε and δ at this level is reserved, also if the study ends early.

    steps  T, the most noised steps that this hospital takes part in
    """

    level: str
    epsilon: float
    delta: float
    steps: int

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values for an entry."""
        return {"version": _VERSION, **asdict(self)}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """Inverse of `to_dict`. Raises LedgerDamaged: it is none, or of a later version."""
        if value.get("version") != _VERSION:
            raise LedgerDamaged(f"a study {_UNKNOWN}")
        return cls(value["level"], value["epsilon"], value["delta"], value["steps"])


def agreed(
    ledger_terms: LedgerTerms, rule: LimitRule | None, whole_plans: float | None, *, is_new: bool
) -> LedgerTerms:
    """Return the terms of a ledger under a policy.

    Args:
        ledger_terms: the terms that stand in the ledger.
        rule: of the policy, or None if it names none.
        whole_plans: of the policy, or None if it names none.
        is_new: no study has joined with this ledger, so that the policy decides.

    Raises:
        ConfigurationError: the policy names other terms than a ledger that is in use.
    """
    share = ledger_terms.whole_plans if whole_plans is None else whole_plans
    policy_terms = LedgerTerms(rule or ledger_terms.rule, share)
    if is_new or policy_terms == ledger_terms:
        return policy_terms
    entry, policy_value, ledger_value = (
        ("rule", f'"{policy_terms.rule}"', f'"{ledger_terms.rule}"')
        if policy_terms.rule != ledger_terms.rule
        else ("whole_plans", f"{policy_terms.whole_plans:g}", f"{ledger_terms.whole_plans:g}")
    )
    raise ConfigurationError(
        f"[limits] {entry} = {policy_value} in policy.toml, and the ledger of this data set was begun under "
        f"{ledger_value}, which holds for ever: set {entry} = {ledger_value}, or name another data set if these are "
        "other patients (--dataset)"
    )
