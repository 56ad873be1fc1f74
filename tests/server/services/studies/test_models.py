"""Initial models and the numbers beside published ones."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np
import pytest

from server.domain.errors import Rejected
from server.services import events
from server.services.coordinator import Coordinator, Written
from server.services.studies import lifecycle
from server.services.studies.models import put_initial, record_metrics
from study_protocol.study.bounds import MAX_WEIGHT
from study_protocol.study.messages import Metrics, ModelInfo, StudyCreate
from study_protocol.wire.tensors import Array, TensorError, encode
from tests.factories.asked_studies import STUDY, open_asked
from tests.factories.hospital_double import MODEL
from tests.factories.settings import settings
from tests.factories.studies import open_study, put_model


def created(coordinator: Coordinator, name: str = "sepsis", **options: object) -> StudyCreate:
    request = StudyCreate(study=name, settings=settings(**options))  # type: ignore[arg-type]
    lifecycle.create(coordinator, request)
    return request


@pytest.mark.quick("sqlite-model0-wrong-dtype", "sqlite-model1-wrong-names", "sqlite-model2-wrong-shape")
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


@pytest.mark.quick("sqlite")
def test_metrics_belong_to_a_model(coordinator: Coordinator) -> None:
    open_study(coordinator)
    measured = Metrics(evaluation_set="held out", values={"accuracy": 0.9})
    assert record_metrics(coordinator, "sepsis", 0, measured).created
    mark = events.marks(coordinator, ["sepsis"])["sepsis"]
    assert not record_metrics(coordinator, "sepsis", 0, measured).created
    assert events.marks(coordinator, ["sepsis"])["sepsis"] == mark
    with pytest.raises(Rejected, match="unknown-model"):
        record_metrics(coordinator, "sepsis", 1, measured)


@pytest.mark.quick("sqlite")
def test_the_same_bytes_again_are_the_same_model_and_others_are_none(coordinator: Coordinator) -> None:
    created(coordinator)

    def put(weights: Mapping[str, Array]) -> Written[ModelInfo]:
        with coordinator.blobs.receive(1 << 20) as incoming:
            incoming.write(encode(weights))
            return put_initial(coordinator, "sepsis", incoming)

    first, again = put(MODEL), put(MODEL)
    assert (first.created, again.created) == (True, False)
    assert first.body == again.body
    assert first.body.sha256 == hashlib.sha256(encode(MODEL)).hexdigest()
    assert (first.body.version, first.body.bytes) == (0, len(encode(MODEL)))
    with pytest.raises(Rejected, match="frozen"):
        put({name: array + 1 for name, array in MODEL.items()})
    assert lifecycle.show(coordinator, "sepsis").state == "enrolling"


@pytest.mark.quick("sqlite")
def test_a_model_from_which_nobody_trains_is_refused(coordinator: Coordinator) -> None:
    created(coordinator)
    weights = {name: array.copy() for name, array in MODEL.items()}
    weights["bias"][0] = np.nextafter(np.float32(MAX_WEIGHT), np.float32(np.inf))
    with pytest.raises(Rejected, match="parameter 'bias'") as refused:
        put_model(coordinator, "sepsis", weights)
    assert refused.value.code == "weights-out-of-bounds"
    weights["bias"][0] = -MAX_WEIGHT
    put_model(coordinator, "sepsis", weights)


@pytest.mark.quick("sqlite")
def test_a_study_without_training_has_no_model(coordinator: Coordinator) -> None:
    open_asked(coordinator, clients=2)
    with pytest.raises(Rejected, match="queries alone has no model"):
        put_model(coordinator, STUDY)
