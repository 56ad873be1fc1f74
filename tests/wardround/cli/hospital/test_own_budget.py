"""What `wardround own-budget` says of the rule, of μ² and of studies that were admitted whole."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from client_sdk.guard.charges import Charge
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from client_sdk.guard.limit_terms import WholePlan
from client_sdk.guard.policy import SitePolicy

POLICY = '[limits]\nrule = "gaussian"\nwhole_plans = 0.5\n[limits.instance]\nepsilon = 4.0\ndelta = 2e-5\n'


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A ledger with four steps of σ 4, and a study that was admitted whole."""
    (tmp_path / "policy.toml").write_text(POLICY)
    rules = SitePolicy.read(tmp_path / "policy.toml")
    with HospitalLedger.open(ledger_path(tmp_path, "records")) as ledger:
        terms = ledger.fix_terms(rules.limits)
        ledger.open_study("sepsis", {})
        for number in range(1, 5):
            limits = rules.own_limits(terms)
            ledger.charge("sepsis", number, Charge("instance", 4.0, 1.0, 1), limits, "a" * 64)
        ledger.open_study("stroke", {"whole_plan": WholePlan("instance", 0.75, 1e-6, 254).to_dict()})
        ledger.charge("stroke", 1, Charge("instance", 0.5, 0.01, 1), (), "a" * 64)
    return tmp_path


def test_the_rule_and_its_sum_are_shown(run: Any, home: Path) -> None:
    shown = run("own-budget", "--home", str(home)).stdout
    assert "rule gaussian: Gaussian differential privacy, without credit for sampling" in shown
    # 4 / 4² of the μ² of (2, 1e-5), less a hundredth of δ for discrete noise.
    used = r"instance: used 0\.250\d* of μ² = 0\.251\d*, \d\d\.\d %\. ε so far 1\.9\d+, if all studies on these records"
    assert re.search(used, " ".join(shown.split()))
    assert "a share of 0.5 of epsilon and delta is set aside" in shown
    assert "stroke: admitted whole, 254 steps, epsilon 0.750 at delta 1e-06 (instance)" in shown


def test_json_holds_the_exact_numbers(run: Any, home: Path) -> None:
    found = json.loads(run("own-budget", "--home", str(home), "--json").stdout)
    assert (found["rule"], found["whole_plans"]) == ("gaussian", 0.5)
    (own,) = found["limits"]
    assert own["used"][0] == pytest.approx(0.25, rel=1e-9)
    assert own["used"][0] < own["used"][1] < 0.2516
    # The limit holds in any case, and ε so far under a condition.
    assert own["tight"] < own["spent"] == own["epsilon"] < 2.0
    assert found["studies_admitted_whole"] == [
        {"study": "stroke", "level": "instance", "epsilon": 0.75, "delta": 1e-6, "steps": 254}
    ]


def test_a_policy_with_another_rule_is_refused(run: Any, home: Path) -> None:
    (home / "policy.toml").write_text(POLICY.replace("gaussian", "renyi"))
    refused = run("own-budget", "--home", str(home), code=1)
    assert 'set rule = "gaussian"' in refused.output
