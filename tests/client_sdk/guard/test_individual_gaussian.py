"""Each patient's own sum under the Gaussian rule: Σ d²/s² of the steps it is in, until μ² is used up."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from accounting.mechanisms.gaussian_squares import largest_squares
from client_sdk.errors import ConfigurationError
from client_sdk.guard.charges import Charge
from client_sdk.guard.individual import IndividualBudget, certificate
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from client_sdk.guard.policy_limits import IndividualLimit
from private_learning.gradients import PerRecordGradients
from private_learning.tasks import load
from private_learning.training import LocalTraining
from private_learning.training.weights import weights_of
from study_protocol.randomness.source import SeededRandomness
from study_protocol.study.settings import StudySettings
from tests.factories.hospitals import coordinator, hospital, plain_policy, records
from tests.factories.settings import TASK_PARAMETERS, settings

TASK = load("logistic-regression", TASK_PARAMETERS)
DATA = TASK.dataset(records(20))
NORMS = PerRecordGradients(TASK.model(), TASK.loss).norms(DATA.inputs, DATA.targets).numpy()
LIMIT = IndividualLimit(epsilon=8.0, delta=1e-5, rule="gaussian")


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)


def budget(saved: bytes | None = None, limit: IndividualLimit = LIMIT, **more: Any) -> IndividualBudget:
    given: dict[str, Any] = {"entries": 0, "sent_since": lambda _: []} | more
    return IndividualBudget.open(limit, saved, DATA.patients, **given)


def spent(own: IndividualBudget) -> np.ndarray:
    return np.array(own.filter.state()["spent"])


def one_step(chosen: StudySettings, own: IndividualBudget, log_moments: Any = None) -> None:
    local = LocalTraining(TASK, DATA, chosen, SeededRandomness(1, allow_insecure=True))
    local.contribution(weights_of(TASK.model()), log_moments, individual=own)


def test_the_drawn_pay_the_square_of_their_norm_and_the_others_nothing() -> None:
    own = budget()
    one_step(settings(sampling_rate=0.5, clip_norm=2.0, noise_multiplier=3.0), own)
    exact = np.minimum(NORMS / 2, 1.0) ** 2 / 9
    drawn = spent(own) > 0
    assert 3 <= int(drawn.sum()) <= 17
    np.testing.assert_allclose(spent(own)[drawn], exact[drawn], rtol=2e-3)
    assert (spent(own)[drawn] >= exact[drawn]).all()
    assert certificate(own.to_bytes()).composition == "gaussian-filter"


def test_an_accounting_sample_that_is_not_drawn_pays_nothing_either() -> None:
    from client_sdk.guard.log_moments import LogMomentBounds

    chosen, plain, beside = settings(bayesian=True, sampling_rate=0.5, clip_norm=2.0), budget(), budget()
    one_step(settings(sampling_rate=0.5, clip_norm=2.0), plain)
    one_step(chosen, beside, LogMomentBounds(chosen, DATA.patients))
    assert (spent(beside) > 0).tolist() == (spent(plain) > 0).tolist()


def test_everybody_stays_for_as_many_steps_as_the_closed_form_allows_and_longer_than_by_rényi() -> None:
    privacy = settings(sampling_rate=1.0, noise_multiplier=10.0, clip_norm=1.0).privacy
    everybody, taken = np.arange(20), {}
    for rule in ("gaussian", "renyi"):
        own, steps = budget(limit=IndividualLimit(epsilon=8.0, delta=1e-5, rule=rule)), 0
        while len(own.admitted(everybody, privacy)):
            own.charge(everybody, np.full(20, 1.0), privacy, rounding=0.0)
            steps += 1
        taken[rule] = steps
    assert taken["gaussian"] == int(100 * largest_squares(8.0, 1e-5)) == 277
    assert 1.1 < taken["gaussian"] / taken["renyi"] < 1.2


def test_the_rule_holds_from_the_first_round_on() -> None:
    begun = budget()
    one_step(settings(sampling_rate=1.0), begun)
    unnamed = budget(begun.to_bytes(), IndividualLimit(epsilon=8.0, delta=1e-5))
    assert unnamed.charges_only_drawn
    np.testing.assert_array_equal(spent(unnamed), spent(begun))
    with pytest.raises(ConfigurationError, match='set rule = "gaussian"'):
        budget(begun.to_bytes(), IndividualLimit(epsilon=8.0, delta=1e-5, rule="renyi"))
    with pytest.raises(ConfigurationError, match="another epsilon"):
        budget(begun.to_bytes(), IndividualLimit(epsilon=9.0, delta=1e-5, rule="gaussian"))
    old = budget(limit=IndividualLimit(epsilon=8.0, delta=1e-5)).to_bytes()
    assert b'"rule"' not in old
    with pytest.raises(ConfigurationError, match='set rule = "renyi"'):
        budget(old, LIMIT)


@pytest.mark.parametrize("more", [{"order": 3.0}, {"every_norm": True}])
def test_what_the_rule_does_not_use_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="Remove one of the two"):
        IndividualLimit(epsilon=8.0, delta=1e-5, rule="gaussian", **more)


def test_rounds_that_left_uncounted_are_charged_to_everybody_at_rate_1() -> None:
    past = [Charge("instance", 4.0, 0.1, 3), Charge("instance", 2.0, 1.0, 1)]
    own = budget(entries=2, sent_since=lambda _: past)
    np.testing.assert_allclose(spent(own), 3 / 16 + 1 / 4, rtol=1e-9)
    histogram = [Charge("instance", 4.0, 0.1, 1, histograms=1, histogram_noise=20.0)]
    with pytest.raises(ConfigurationError, match="histogram"):
        budget(entries=1, sent_since=lambda _: histogram)


def test_a_killed_hospital_goes_on_from_the_same_sums(tmp_path: Path) -> None:
    chosen = settings(sampling_rate=1.0, clip_norm=1e-3, noise_multiplier=10.0, max_steps=4)
    rules = plain_policy(individual={"epsilon": 8.0, "delta": 1e-5, "rule": "gaussian"})
    study = coordinator(chosen)
    here = hospital(study, tmp_path)

    def meddle(request: Any) -> None:
        if "/updates/" in request.url.path and len(study.updates) == 3:
            raise KeyboardInterrupt

    study.meddle = meddle
    with pytest.raises(KeyboardInterrupt):
        here.join("sepsis", None, records(), policy=rules, dataset="icu")
    study.meddle = None
    here.join("sepsis", None, records(), policy=rules, dataset="icu")
    with HospitalLedger.open(ledger_path(tmp_path, "icu")) as ledger:
        saved = ledger.individual()
    assert saved is not None
    np.testing.assert_allclose(json.loads(saved)["filter"]["spent"], 4 / 100, rtol=1e-3)
