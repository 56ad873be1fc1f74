"""The accounts behind a budget: one class for each way in which a limit is kept."""

from accounting.budget.accounts.base import Account, LimitAccount
from accounting.budget.accounts.classical import ClassicalLimit
from accounting.budget.accounts.cumulative import CumulativeLimit
from accounting.budget.accounts.fixed_plan import FixedPlanLimit
from accounting.budget.accounts.gaussian import GaussianLimit
from accounting.budget.accounts.gaussian_rounds import GaussianRoundsLimit
from accounting.budget.accounts.histogram import HistogramLimit

__all__ = [
    "Account",
    "ClassicalLimit",
    "CumulativeLimit",
    "FixedPlanLimit",
    "GaussianLimit",
    "GaussianRoundsLimit",
    "HistogramLimit",
    "LimitAccount",
]
