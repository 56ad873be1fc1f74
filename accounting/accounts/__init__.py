"""The accounts behind a budget: one class for each way in which a limit is kept."""

from accounting.accounts.base import LimitAccount
from accounting.accounts.classical import ClassicalLimit
from accounting.accounts.cumulative import CumulativeLimit
from accounting.accounts.histogram import HistogramLimit, distance_edges

__all__ = ["ClassicalLimit", "CumulativeLimit", "HistogramLimit", "LimitAccount", "distance_edges"]
