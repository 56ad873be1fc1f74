"""Before a study starts: does one round fit, and with how much noise would it?"""

import dataclasses

import pytest

from accounting.budget.budget import Budget
from accounting.plan.plan import FirstRoundOverspends, PlanError
from tests.accounting.budget.plans import (
    plan,
)


def test_a_study_whose_first_round_would_overspend_says_so_with_the_noise_that_would_fit():
    tight = plan(noise_multiplier=0.3, sampling_rate=0.5)
    with pytest.raises(FirstRoundOverspends) as refused:
        Budget.open(tight)
    one, whole = refused.value.noise_one_round, refused.value.noise_max_steps
    assert 0.3 < one < whole
    Budget.open(dataclasses.replace(tight, noise_multiplier=one))
    with pytest.raises(FirstRoundOverspends):
        Budget.open(dataclasses.replace(tight, noise_multiplier=one * 0.98))
    roomy = Budget.open(dataclasses.replace(tight, noise_multiplier=whole))
    while roomy.authorise().allowed:
        roomy.reserve(roomy.last_round + 1)
        roomy.settle(roomy.pending, None)
    assert roomy.authorise().reason == "max-steps-reached"


def test_an_order_at_which_no_noise_would_do_is_named():
    with pytest.raises(PlanError, match="larger order"):
        Budget.open(plan(classical_order=0.5))
