"""Every example in accounting's docstrings runs, and every exported function and class has one."""

from __future__ import annotations

import doctest
import inspect
import pkgutil
from importlib import import_module

import pytest

import accounting

MODULES = sorted(module.name for module in pkgutil.walk_packages(accounting.__path__, "accounting."))
# Words and bases that are used in the examples of others.
SHOWN_ELSEWHERE = {
    *("BayesianPlan", "Definition", "EstimateSpec", "Event", "FilterSpec", "Forecast", "HistogramRelease", "Level"),
    *("LimitForecast", "LimitPlan", "Observer", "OutcomePair", "Plan", "Relation", "SignalToNoise"),
}


@pytest.mark.parametrize("name", MODULES)
def test_its_examples_run(name: str) -> None:
    result = doctest.testmod(import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0


@pytest.mark.parametrize("name", sorted(set(accounting.__all__) - SHOWN_ELSEWHERE))
def test_what_is_exported_has_an_example(name: str) -> None:
    value = getattr(accounting, name)
    if not (inspect.isclass(value) and issubclass(value, Exception)):
        assert ">>> " in (value.__doc__ or "")
