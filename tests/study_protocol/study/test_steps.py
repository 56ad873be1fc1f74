"""Which studies take questions in steps: one whose limits count that a question depends on answers."""

from __future__ import annotations

import pytest

from study_protocol.study.steps import fault_of_steps
from tests.factories.settings import limit, settings, statistics_settings


def test_classical_limits_count_what_depends_on_answers() -> None:
    assert fault_of_steps(settings()) is None
    assert fault_of_steps(statistics_settings(masked=False)) is None


@pytest.mark.parametrize(("adversary", "takes"), [("adaptive", True), ("path", False)])
def test_a_bayesian_limit_counts_it_against_an_adaptive_adversary_alone(adversary: str, takes: bool) -> None:
    limits = [limit("instance", epsilon=8.0), limit("instance", "bayesian", epsilon=5.0)]
    chosen = settings(limits=limits, bayesian={"adversary": adversary})
    assert (fault_of_steps(chosen) is None) == takes
