"""A round's charge: what the coordinator may ask for agrees with the budget that it must keep itself."""

import math

import pytest

from client_sdk.errors import LedgerDamaged
from client_sdk.guard.charges import Charge, OwnLimit, epsilon_spent
from tests.factories.settings import settings

CLASSICAL = {"definition": "classical", "delta": 1e-5}
JOINT = [{**CLASSICAL, "level": "instance", "epsilon": 6.0}, {**CLASSICAL, "level": "client", "epsilon": 14.0}]
RARE = {"sampling_rate": 0.1, "classical_order": 8.0}
STUDIES = {
    "parallel": settings(
        "parallel",
        **RARE,
        noise_multiplier=2.0,
        max_steps=400,
        limits=[{**CLASSICAL, "level": "instance", "epsilon": 3.0}],
    ),
    "client": settings(scheme="client", max_steps=400, limits=[{**CLASSICAL, "level": "client", "epsilon": 9.0}]),
    "sequential": settings(
        "sequential", **RARE, max_steps=4000, limits=[{**CLASSICAL, "level": "instance", "epsilon": 1.25}]
    ),
    "joint": settings("joint", masked=True, max_steps=400, limits=JOINT, client_clip_norm=2.0, classical_order=4.0),
}

ACCOUNTING_SAMPLE = {"accounting_sample": {"records": 50, "source": "members"}, "disclosure": "noised"}
EVERY_OTHER = {"histogram_noise": {"std": 12.0, "every": 2}}
BAYESIAN = {"definition": "bayesian", "epsilon": 40.0, "delta": 1e-5, "estimator_failure_probability": 1e-6}


def both(level, epsilon):
    return [{**CLASSICAL, "level": level, "epsilon": epsilon}, {**BAYESIAN, "level": level}]


NOISED = {
    "noised parallel": settings(
        bayesian=True,
        max_steps=400,
        limits=both("instance", 3.5),
        **ACCOUNTING_SAMPLE,
        **EVERY_OTHER,
        noise_multiplier=2.0,
    ),
    "noised sequential": settings(
        "sequential",
        masked=True,
        bayesian=True,
        max_steps=400,
        limits=both("instance", 4.0),
        **ACCOUNTING_SAMPLE,
        **EVERY_OTHER,
    ),
    "noised client": settings(
        "client",
        masked=True,
        bayesian=True,
        max_steps=400,
        limits=both("client", 9.0),
        disclosure="noised",
        **EVERY_OTHER,
    ),
}
NOISED["noised joint"] = settings(
    "joint",
    masked=True,
    bayesian=True,
    max_steps=400,
    limits=[*JOINT, {**BAYESIAN, "level": "client"}],
    client_clip_norm=2.0,
    classical_order=4.0,
    disclosure="noised",
    **EVERY_OTHER,
)
STUDIES |= NOISED


@pytest.mark.parametrize("scheme", ["sequential", "joint"])
def test_its_own_ledger_relies_on_nobody_elses_noise(scheme):
    charge = Charge.of(STUDIES[scheme])
    assert (charge.level, charge.noise_multiplier) == ("instance", 4.0)


@pytest.mark.parametrize("scheme", sorted(NOISED))
def test_a_round_that_publishes_pays_for_its_histogram(scheme):
    """By the closed form λ(λ+1)Δ²/2z²: a client adds one count, its own noise share counted; a record moves one."""
    study = NOISED[scheme]
    quiet, reported = (Charge.of(study, [round]) for round in (3, 4))
    assert (quiet.histograms, reported.histograms) == (0, 1)
    squared = 12.0**2 / {"noised client": 3, "noised joint": 3 * 2}.get(scheme, 2)
    limit = OwnLimit(reported.level, 100.0, 1e-5, 8.0)
    more = epsilon_spent([quiet, reported], limit) - epsilon_spent([quiet, quiet], limit)
    assert more == pytest.approx(8 * 9 / (2 * squared) / 8, rel=1e-6)
    lost = Charge.of(study, range(1, 6))
    assert (lost.histograms, lost.steps) == (2, quiet.steps)
    assert not math.isnan(epsilon_spent([lost], limit))


def test_a_charge_that_another_version_wrote_is_named() -> None:
    with pytest.raises(LedgerDamaged, match="histogram_noise, histograms"):
        Charge.from_body({"level": "instance", "noise_multiplier": 1.0, "sampling_rate": 0.5, "steps": 1})
