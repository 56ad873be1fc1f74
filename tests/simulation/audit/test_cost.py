"""What attacks cost: counted operations against a closed form, and how many shadow studies follow from them."""

from __future__ import annotations

import pytest

from client_sdk.errors import ConfigurationError
from private_learning.tasks import load
from simulation.audit import shadows
from simulation.audit.cost import seconds_of
from simulation.audit.shadows import FEWEST_STUDIES, STUDIES, usual_studies
from simulation.population import Population
from tests.factories.hospitals import records
from tests.factories.settings import TASK_PARAMETERS, settings


def test_a_network_s_multiplications_are_counted() -> None:
    task = load("mlp", TASK_PARAMETERS | {"hidden": 8})
    dataset = task.dataset(records(4))
    # 2 columns to 8 units to 1 output.
    assert seconds_of(task, dataset) == (2 * 8 + 8 * 1) / 8e9


def test_costly_models_have_fewer_studies_and_too_costly_ones_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    task = load("mlp", TASK_PARAMETERS | {"hidden": 8})
    population = Population.of({f"h{place}": task.dataset(records(20, seed=place)) for place in range(2)})
    found: list[int] = []
    for seconds in (1e-9, 3e-5, 6e-5):
        monkeypatch.setattr(shadows, "seconds_of", lambda *_, each=seconds: each)
        found.append(usual_studies(settings(), task, population))
    assert STUDIES == found[0] > found[1] > found[2] >= FEWEST_STUDIES
    monkeypatch.setattr(shadows, "seconds_of", lambda *_: 1e-2)
    with pytest.raises(ConfigurationError, match="ask for them with --studies"):
        usual_studies(settings(), task, population)
