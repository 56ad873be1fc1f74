"""One seed of the audit: a sound masked study is not caught, each planted defect is, by the attack that can see it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from research.attacks import audit
from tests.factories.masked_memory import MaskedHospitals

SEED, HOSPITALS, CANARIES = 1, 10, 20_000


@pytest.mark.quick("clip forgotten-True-False", "noise halved-True-True", "sound-False-False")
@pytest.mark.parametrize(
    ("name", "one_run", "differences"),
    [
        ("sound", False, False),
        ("noise halved", True, True),
        ("clip forgotten", True, False),
        ("noise reused", False, True),
    ],
)
def test_a_defect_is_seen_by_the_attack_that_can_see_it(name: str, one_run: bool, differences: bool) -> None:
    """A sound study is caught by chance in fewer than one run in a thousand; the seed is fixed."""
    found = audit.attack(audit.TWINS[name], hospitals=HOSPITALS, canaries=CANARIES, seed=SEED)
    assert (found.one_run < audit.ALARM_ONE_RUN, found.differences < audit.ALARM_LAW) == (one_run, differences)
    assert found.caught == (one_run or differences)
    assert 1.9 < found.epsilon < 2.1
    assert (found.at_least > found.epsilon) == one_run


def test_shuffled_batches_are_seen_by_their_sizes() -> None:
    assert audit.batches(audit.TWINS["sound"].randomness(SEED)) > audit.ALARM_LAW
    assert audit.batches(audit.Shuffled(SEED, allow_insecure=True)) < audit.ALARM_LAW


def test_the_bound_without_delta_is_a_coin_s() -> None:
    """Under pure ε every guess is right with probability at most e^ε/(1 + e^ε) (Theorem 5.2 with δ = 0)."""
    for right in (300, 330, 400):
        found = audit.p_value(0, 600, right, 0.2)
        assert found == pytest.approx(stats.binom.sf(right - 1, 600, math.exp(0.2) / (1 + math.exp(0.2))))
    assert audit.p_value(20_000, 600, 500, 0.2) > audit.p_value(0, 600, 500, 0.2)
    assert audit.p_value(20_000, 600, 100, 0.2) == 1.0


def test_an_honest_score_raises_no_alarm_and_a_clear_one_does() -> None:
    draw, alarms = np.random.default_rng(2), 0
    inside = draw.random(CANARIES) < 0.5
    for signal, caught in ((audit.SIGNAL, False), (2 * audit.SIGNAL, True)):
        guesses, right = audit.guessed(signal * inside + draw.normal(size=CANARIES), inside)
        alarms += (audit.p_value(CANARIES, guesses, right, 1.99) < audit.ALARM_ONE_RUN) == caught
    assert alarms == 2


def test_neighbouring_differences_of_noise_have_the_law_that_is_tested() -> None:
    draw = np.random.default_rng(3)
    found = [audit.too_small(np.diff(draw.normal(size=(3, 500)), axis=0), math.sqrt(2)) for _ in range(300)]
    assert stats.kstest(found, "uniform").pvalue > 1e-4
    assert audit.too_small(np.zeros((2, 500)), 1.0) == 0.0


def test_only_masked_studies_are_summed_under_masks() -> None:
    values = audit.study(4, 40).as_json()
    clear = values | {"privacy": values["privacy"] | {"scheme": "parallel", "masking": None}}
    with pytest.raises(ValueError, match="no sums under masks"):
        MaskedHospitals(type(audit.study(4, 40)).model_validate(clear), {}, ["a"])
