"""Numbers of an evaluation set stand beside a model, and only beside one."""

from __future__ import annotations

import pytest

from tests.factories.live_coordinator import Live, code_of


def test_metrics_stand_beside_a_model(here: Live, study: str) -> None:
    here.open_study(study)
    path = f"/v1/studies/{study}/models/0"
    metrics = {"evaluation_set": "held-out wards", "values": {"accuracy": 0.9}}
    for status in (201, 200):
        answer = here.operator("PUT", f"{path}/metrics", json=metrics)
        assert (answer.status_code, answer.json()) == (status, metrics)
    other = metrics | {"values": {"accuracy": 0.8}}
    assert here.operator("PUT", f"{path}/metrics", json=other).json() == other, "later numbers replace earlier ones"


def test_metrics_of_no_model_are_refused(here: Live, study: str) -> None:
    here.open_study(study)
    metrics = {"evaluation_set": "held-out wards", "values": {"accuracy": 0.9}}
    missing = here.operator("PUT", f"/v1/studies/{study}/models/9/metrics", json=metrics)
    assert code_of(missing) == (404, "unknown-model")


@pytest.mark.parametrize("value", ["NaN", "Infinity"])
def test_a_metric_is_a_finite_number(here: Live, study: str, value: str) -> None:
    here.open_study(study)
    text = f'{{"evaluation_set": "a", "values": {{"accuracy": {value}}}}}'
    path = f"/v1/studies/{study}/models/0/metrics"
    answer = here.operator("PUT", path, content=text, headers={"Content-Type": "application/json"})
    assert code_of(answer) == (422, "invalid-request")
