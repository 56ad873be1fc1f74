"""One plan from one study's settings: what is credited, who is counted on, against whom it holds."""

from __future__ import annotations

import subprocess
import sys

import pytest

from accounting.plan.plan import HistogramRelease
from accounting.plan.schemes import SCHEMES
from accounting.units import Definition, Level, Observer
from client_sdk.protocol.study.plan_of import plan_of
from client_sdk.protocol.study.settings import StudySettings
from tests.client_sdk.protocol.study.test_settings import (
    ACCOUNTING_SAMPLE,
    CLIENTS_ONLY,
    HELD_OUT,
    MASKING,
    NOISED,
    masked,
)

TOP = {"joint": {"client_clip_norm": 3.0}}


def study(scheme: str, *, min_clients: int = 4, **options: object) -> StudySettings:
    return StudySettings.model_validate(masked(scheme, min_clients=min_clients, **TOP.get(scheme, {}) | options))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_number_of_the_settings_stands_in_the_plan(scheme) -> None:
    settings = study(scheme)
    privacy, plan = settings.privacy, plan_of(settings)
    assert plan.rules is SCHEMES[scheme]
    for name in ("clip_norm", "client_clip_norm", "noise_multiplier", "max_steps", "classical_order", "disclosure"):
        assert getattr(plan, name) == getattr(privacy, name)
    assert {(str(x.level), str(x.definition), x.epsilon, x.delta) for x in plan.limits} == {
        (x.level, x.definition, x.epsilon, x.delta) for x in privacy.limits
    }
    assert plan.bayesian is not None
    assert (plan.bayesian.orders, plan.bayesian.composition) == (privacy.bayesian.orders, privacy.bayesian.composition)
    assert (plan.steps_per_round, plan.rounds) == (settings.steps_per_round, settings.rounds)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_only_pooled_noise_counts_on_others(scheme) -> None:
    honest = MASKING["min_survivors"] - MASKING["colluders"]
    assert plan_of(study(scheme)).honest_survivors == (honest if scheme in ("sequential", "joint") else 1)


def test_clients_are_credited_only_where_nobody_sees_who_was_sampled() -> None:
    rates = {"masking": None, "client_sampling_rate": 0.25, "sampling_rate": 0.1}
    assert plan_of(study("client", min_clients=0, **rates)).sampling_rate == 0.25
    assert plan_of(study("client", min_clients=1, **rates)).sampling_rate == 1.0
    assert plan_of(study("parallel", min_clients=1, **rates)).sampling_rate == 0.1


def test_the_coordinator_is_an_observer_only_of_noised_values() -> None:
    noised = {"parallel": NOISED | ACCOUNTING_SAMPLE, "sequential": NOISED | HELD_OUT, "joint": NOISED | CLIENTS_ONLY}
    for scheme, options in noised.items():
        assert plan_of(study(scheme, **options)).observer is Observer.COORDINATOR
        assert plan_of(study(scheme)).observer is Observer.RELEASES
    assert plan_of(study("client", **NOISED)).observer is Observer.RELEASES


def test_the_accounting_sample_and_the_histograms_stand_in_the_plan() -> None:
    plan = plan_of(study("sequential", **NOISED, **HELD_OUT))
    assert plan.bayesian is not None
    assert plan.bayesian.sample == "held-out"
    assert plan.release == HistogramRelease(6.0, 2)
    assert plan.limit(Level.INSTANCE, Definition.BAYESIAN) is not None
    assert plan.limit(Level.CLIENT, Definition.BAYESIAN) is None


def test_a_plan_loads_nothing_that_computes() -> None:
    program = (
        "import sys, client_sdk.protocol.study.plan_of, client_sdk.protocol.secure_sum.parameters\n"
        "sys.exit(', '.join({'scipy', 'dp_accounting', 'torch', 'httpx'} & set(sys.modules)) or 0)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
