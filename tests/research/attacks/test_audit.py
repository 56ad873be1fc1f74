"""One seed of the audit: a sound masked study is not caught, each planted defect is, by the attack that can see it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from accounting.budget.accounts.fixed_plan import FixedPlanLimit
from research.attacks import audit
from study_protocol.study.plan_of import plan_of
from tests.factories.masked_memory import MaskedHospitals

SEED, HOSPITALS, CANARIES = 1, 10, 20_000


@pytest.mark.quick("clip forgotten-True-False")
@pytest.mark.parametrize(
    ("name", "one_run", "differences"),
    [
        ("sound", False, False),
        ("noise halved", True, True),
        ("clip forgotten", True, False),
        ("noise reused", False, True),
        ("sampled, sound", False, False),
        ("sampled, everybody takes part", True, False),
    ],
)
def test_a_defect_is_seen_by_the_attack_that_can_see_it(name: str, one_run: bool, differences: bool) -> None:
    """A sound study is caught by chance in fewer than one run in a thousand; the seed is fixed."""
    found = audit.attack(audit.TWINS[name], hospitals=HOSPITALS, canaries=CANARIES, seed=SEED)
    assert (found.one_run < audit.ALARM_ONE_RUN, found.differences < audit.ALARM_LAW) == (one_run, differences)
    assert found.caught == (one_run or differences)
    low, high = (0.5, 0.6) if "sampled" in name else (1.9, 2.1)
    assert low < found.epsilon < high
    assert (found.at_least > found.epsilon) == one_run


@pytest.mark.parametrize("rate", [1.0, audit.SAMPLED])
def test_the_certificate_is_the_number_of_the_whole_plan(rate: float) -> None:
    settings = audit.study(HOSPITALS, CANARIES, rate)
    plan = plan_of(settings)
    limit = replace(plan.limits[0], epsilon=2.0, enforcement="fixed-plan")
    stated = FixedPlanLimit(replace(plan, limits=(limit,)), limit).trained
    # What rounds the noise is taken off the stated one's δ.
    assert 0 <= stated - audit.certificate(settings) < 1e-5


def test_shuffled_batches_are_seen_by_their_sizes() -> None:
    assert audit.batches(audit.TWINS["sound"].randomness(SEED)) > audit.ALARM_LAW
    assert audit.batches(audit.ShuffledBatches(SEED, allow_insecure=True)) < audit.ALARM_LAW


def test_only_masked_studies_are_summed_under_masks() -> None:
    values = audit.study(4, 40).as_json()
    clear = values | {"privacy": values["privacy"] | {"scheme": "parallel", "masking": None}}
    with pytest.raises(ValueError, match="no sums under masks"):
        MaskedHospitals(type(audit.study(4, 40)).model_validate(clear), {}, ["a"])
