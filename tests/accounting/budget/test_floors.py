"""The least bound of an accounting sample: no honest hospital is below it, and a report of next to nothing is."""

import numpy as np
import pytest

from accounting.budget.floors import min_bounds
from accounting.errors import InvalidArgument
from accounting.units import Definition, Level
from client_sdk.guard.log_moments import LogMomentBounds
from study_protocol.study.plan_of import plan_of
from tests.factories.settings import settings


@pytest.mark.parametrize("records", [3, 40, 1000])
@pytest.mark.parametrize("estimator", ["betting", "band"])
@pytest.mark.parametrize("composition", ["running", "holder"])
@pytest.mark.parametrize("adversary", ["path", "adaptive"])
def test_a_hospital_whose_gradients_are_all_zero_is_not_below_it(records, estimator, composition, adversary):
    chosen = settings(
        bayesian={"estimator": estimator, "composition": composition, "adversary": adversary},
        accounting_sample={"records": records, "source": "members"},
        max_steps=4,
    )
    bounds = LogMomentBounds(chosen, [f"p{i}" for i in range(records)])
    bounds.measure(np.zeros(records), rounding=0.0)
    reported = np.concatenate(list(bounds.tensors().values()))
    plan = plan_of(chosen)
    least = min_bounds(plan, plan.limit(Level.INSTANCE, Definition.BAYESIAN), records)
    assert (reported >= least).all()
    assert (least > 0).all()
    # Not far below either: a report of a hundredth of it is caught.
    assert (least > reported / 100).all()


def test_more_records_show_less_and_a_classical_limit_none():
    plan = plan_of(settings(bayesian=True))
    limit = plan.limit(Level.INSTANCE, Definition.BAYESIAN)
    assert (min_bounds(plan, limit, 10) > min_bounds(plan, limit, 10_000)).all()
    with pytest.raises(InvalidArgument):
        min_bounds(plan, plan.limit(Level.INSTANCE, Definition.CLASSICAL), 10)
