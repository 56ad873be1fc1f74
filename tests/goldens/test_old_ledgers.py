"""Ledgers written before settings and wire had their present names give the same numbers, to the last bit.

The map from old names to new ones stands here alone: nothing that ships reads the old ones. `old_ledgers.json` was
written by the code before the renaming: whole studies of every scheme, every other one with a round given back and a
round charged in full before its first settled one, and what their budgets stated at the end.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from accounting.budget.budget import Budget, replay
from accounting.budget.ledger import Entry
from accounting.budget.statements import chance_by_epsilon
from accounting.plan.plan import Plan
from tests.factories.ledgers import after, opened

NAMES = {
    "horizon": "max_steps",
    "failure": "estimator_failure_probability",
    "notion": "definition",
    "honest_shares": "honest_survivors",
    "evidence": "report",
}
KINDS = {"stood": "charged-in-full", "voided": "cancelled"}
STUDIES = json.loads(Path(__file__).with_name("old_ledgers.json").read_text())


def renamed(value: Any) -> Any:
    if isinstance(value, dict):
        return {NAMES.get(name, name): renamed(item) for name, item in value.items()}
    if isinstance(value, list):
        return [renamed(item) for item in value]
    return {"public": "at-end"}.get(value, value) if isinstance(value, str) else value


def replayed(entries: list[dict[str, Any]]) -> Budget:
    chain: list[Entry] = []
    for entry in entries:
        kind, body = KINDS.get(entry["kind"], entry["kind"]), renamed(entry["body"])
        if kind == "opened":
            # Their settings were not in them; a replay takes the plan.
            chain += opened(Plan.from_dict(body["plan"] | {"queries": None}), study=body["study"])
            continue
        withheld = {"report": None} if kind == "finished" else {}
        chain.append(after(chain, kind, entry["round"], **{**withheld, **body}))
    return replay(chain)


def stated(budget: Budget) -> list[list[Any]]:
    limits: list[list[Any]] = []
    for limit in budget.statements():
        names = ("level", "definition", "state", "epsilon", "delta", "spent", "reserved", "remaining", "attack_success")
        certificate = limit["certificate"]
        shown = None if certificate is None else [certificate[name] for name in ("epsilon", "order", "orders")]
        limits.append([*(_as_then(limit)[name] for name in names), shown])
    return limits + [[one[name] for name in ("population", "epsilon", "delta")] for one in budget.percentiles()]


def _as_then(limit: dict[str, Any]) -> dict[str, Any]:
    """The chance of a right guess was what ε and δ allow. It is now that of all that the plan may release: no more."""
    if limit["attack_success"] is None:
        return limit
    spent = math.inf if limit["spent"] is None else limit["spent"]
    allowed = chance_by_epsilon(spent, limit["delta"])
    assert 0.5 <= limit["attack_success"] <= chance_by_epsilon(max(limit["epsilon"], spent), limit["delta"])
    return {**limit, "attack_success": allowed}


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study["study"])
def test_an_old_ledger_states_what_it_stated(study: dict[str, Any]) -> None:
    """But for the last bits: equal steps are multiplied now, where they were added one by one."""
    found = json.loads(json.dumps(stated(replayed(study["entries"]))))
    assert _close(found, study["statements"]), found


def _close(found: Any, expected: Any) -> bool:
    if isinstance(found, list) and isinstance(expected, list):
        return len(found) == len(expected) and all(map(_close, found, expected))
    if isinstance(found, float) and isinstance(expected, float):
        return math.isclose(found, expected, rel_tol=1e-14)
    return found == expected


def test_every_kind_of_entry_is_among_them() -> None:
    kinds = {entry["kind"] for study in STUDIES for entry in study["entries"]}
    assert kinds == {"opened", "reserved", "settled", "stood", "voided", "finished"}
