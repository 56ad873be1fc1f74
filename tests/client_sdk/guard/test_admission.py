"""Own limits that are too small for one round are named at once, with the number that would do."""

from __future__ import annotations

import math
import re

import pytest

from accounting.accountants.classical import ClassicalAccountant
from client_sdk.errors import OwnBudgetExceeded
from client_sdk.guard.charges import Charge
from client_sdk.guard.first_round import min_epsilon, require_first_round
from client_sdk.guard.policy import SitePolicy
from tests.factories.settings import settings

ROUND = Charge.of(settings(), [1])


def policy(entry: str, epsilon: float, **more: float) -> SitePolicy:
    limit = {"epsilon": epsilon, "delta": 1e-6, **more}
    return SitePolicy.model_validate({"individual": limit} if entry == "individual" else {"limits": {entry: limit}})


def needed(entry: str, charges: list[Charge], **more: float) -> float:
    with pytest.raises(OwnBudgetExceeded, match=rf"\[(limits\.)?{entry}\] epsilon = 0\.01 in policy\.toml") as refused:
        require_first_round(policy(entry, 0.01, **more), charges, ROUND)
    found = re.search(r"at least ([0-9.]+)", refused.value.detail)
    assert found is not None
    return float(found[1])


@pytest.mark.parametrize("more", [{}, {"order": 8.0}])
@pytest.mark.parametrize("entry", ["instance", "individual"])
def test_the_number_that_is_named_is_enough_and_little_less_is_not(entry: str, more: dict[str, float]) -> None:
    least = needed(entry, [], **more)
    require_first_round(policy(entry, least, **more), [], ROUND)
    with pytest.raises(OwnBudgetExceeded):
        require_first_round(policy(entry, 0.98 * least, **more), [], ROUND)


def test_it_is_the_accountants_number() -> None:
    account = ClassicalAccountant(delta=1e-6, method="rdp", order=8.0)
    account.step(noise_multiplier=1.0, sampling_rate=0.5, count=1)
    assert 1.0 <= needed("instance", [], order=8.0) / account.epsilon() < 1.02


def test_other_rounds_on_the_same_records_count() -> None:
    assert needed("instance", [ROUND] * 5, order=8.0) > needed("instance", [], order=8.0)


def test_no_number_is_named_where_none_would_do() -> None:
    assert min_epsilon(lambda _: False, 0.5) is None
    assert min_epsilon(lambda epsilon: epsilon >= math.e, 0.5) == 2.72
