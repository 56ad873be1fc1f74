"""Initial models and the numbers beside published ones."""

from __future__ import annotations

import numpy as np
import pytest

from server.domain.errors import Rejected
from server.services import events
from server.services.coordinator import Coordinator
from server.services.studies import lifecycle, models
from study_protocol.study.messages import Metrics, StudyCreate
from study_protocol.wire.tensors import TensorError
from tests.factories.settings import settings
from tests.factories.studies import open_study, put_model


def created(coordinator: Coordinator, name: str = "sepsis", **options: object) -> StudyCreate:
    request = StudyCreate(study=name, settings=settings(**options))  # type: ignore[arg-type]
    lifecycle.create(coordinator, request)
    return request


@pytest.mark.parametrize(
    ("model", "code"),
    [
        ({"w": np.zeros(3, np.float64)}, "wrong-dtype"),
        ({}, "wrong-names"),
        ({"w": np.zeros((0, 3), np.float32)}, "wrong-shape"),
    ],
)
def test_what_cannot_be_a_model(
    coordinator: Coordinator, model: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]], code: str
) -> None:
    created(coordinator)
    with pytest.raises(TensorError) as refused:
        put_model(coordinator, "sepsis", model)
    assert refused.value.code == code
    assert lifecycle.show(coordinator, "sepsis").state == "draft"


def test_metrics_belong_to_a_model(coordinator: Coordinator) -> None:
    open_study(coordinator)
    measured = Metrics(evaluation_set="held out", values={"accuracy": 0.9})
    assert models.record_metrics(coordinator, "sepsis", 0, measured).created
    mark = events.marks(coordinator, ["sepsis"])["sepsis"]
    assert not models.record_metrics(coordinator, "sepsis", 0, measured).created
    assert events.marks(coordinator, ["sepsis"])["sepsis"] == mark
    with pytest.raises(Rejected, match="unknown-model"):
        models.record_metrics(coordinator, "sepsis", 1, measured)
