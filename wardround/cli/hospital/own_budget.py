"""The command `wardround own-budget`: the hospital's own limits on one data set, over all its studies."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from client_sdk.api.config import load as load_settings
from study_protocol.wire.rounded import significant
from wardround.cli.hospital.hospital import Dataset, PolicyFile, policy_in_force
from wardround.cli.shared.shared import AsJson, Home, not_here, number, plain_errors, print_json, say, table

if TYPE_CHECKING:
    from client_sdk.guard.limit_terms import LedgerTerms

_RULES: Mapping[str, str] = MappingProxyType(
    {
        "renyi": "a Rényi divergence at one order, with credit for sampling",
        "gaussian": "Gaussian differential privacy, without credit for sampling",
    }
)


def own_budget(
    dataset: Dataset = "records", policy: PolicyFile = None, home: Home = None, as_json: AsJson = False
) -> None:
    """Print this hospital's own budget of one data set over all its studies. Works without a network."""
    from client_sdk.guard.individual import certificate
    from client_sdk.guard.ledger import HospitalLedger
    from client_sdk.guard.ledger_file import ledger_path
    from client_sdk.study.events import own_spent

    with plain_errors():
        directory = home or load_settings().client_home
        rules = policy_in_force(policy, directory)
        with HospitalLedger.open(ledger_path(directory, dataset), read_only=True) as ledger:
            charges, terms, whole = ledger.charges(), ledger.terms(rules.limits), ledger.whole_plans()
            limits = [dataclasses.asdict(own_spent(charges, limit)) for limit in ledger.own_limits(rules)]
            saved = ledger.individual()
        patients = None if saved is None else dataclasses.asdict(certificate(saved))
        plans = [{"study": study, **dataclasses.asdict(plan)} for study, plan in whole.items()]
    if not charges and not plans and (elsewhere := not_here(directory, dataset)):
        say(f"{dataset}: this data set has no charges{elsewhere}", err=True)
    if as_json:
        statement = {"dataset": dataset, **dataclasses.asdict(terms), "limits": limits, "individual": patients}
        print_json(statement | {"studies_admitted_whole": plans})
    else:
        _show_own_budget(dataset, limits, patients, len(charges))
        _show_terms(terms, limits, plans)


def _show_terms(terms: LedgerTerms, limits: list[dict[str, Any]], plans: list[dict[str, Any]]) -> None:
    """Say by which rule the limits are kept, how much of μ² is used, and what is reserved for whole studies."""
    if limits:
        say(f"rule {terms.rule}: " + _RULES[terms.rule])
    for limit in limits:
        if limit["progress"] is not None:
            say(
                f"{limit['level']}: {limit['progress']}. ε so far {number(limit['tight'])}, if all studies on these "
                "records ended here for reasons that do not depend on their results"
            )
    if terms.whole_plans and limits:
        say(f"a share of {terms.whole_plans:g} of epsilon and delta is set aside for studies that are admitted whole")
    for plan in plans:
        say(
            f"{plan['study']}: admitted whole, {plan['steps']} steps, epsilon {number(plan['epsilon'])} at delta "
            f"{significant(plan['delta'])} ({plan['level']})"
        )


def _show_own_budget(
    dataset: str, limits: list[dict[str, Any]], patients: dict[str, Any] | None, charge_count: int
) -> None:
    if not limits and patients is None:
        say(
            f"{dataset}: {charge_count} charges, and no local limit to compare them with. "
            "[limits.instance] in the site policy sets one for patients, and [limits.client] for whole updates"
        )
        return
    rows = [[r["level"], r["definition"], number(r["spent"]), number(r["epsilon"]), f"{r['delta']:g}"] for r in limits]
    if patients is not None:
        # The guaranteed column is empty: the sums of single patients are secret.
        rows.append(["instance", "individual", "-", number(patients["epsilon"]), f"{patients['delta']:g}"])
    table(f"{dataset}: this hospital's own budget", ["level", "definition", "guaranteed", "limit", "delta"], rows)
    if patients is not None:
        say(f"individual, {patients['steps']} steps: {patients['assumption']}")
