"""The norm that a bound on updates starts from, read from released models once."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from server.db.blobs import models_of
from server.db.file_blobs import FileBlobs
from server.services.coordinator import Coordinator
from server.services.rounds.anchor import anchor_of
from study_protocol.study.settings import StudySettings
from study_protocol.wire.tensors import encode, spec_of
from tests.factories.settings import settings

# Norms 5 and 13, and the distance between them: √(9 + 64) = √73.
FIRST = {"bias": np.array([0.0], np.float32), "weight": np.array([3.0, 4.0], np.float32)}
SECOND = {"bias": np.array([0.0], np.float32), "weight": np.array([0.0, 12.0], np.float32)}
PLAIN = {"optimiser": {"name": "plain", "learning_rate": 0.5}}
AROUND = settings(training={"clipping_centre": "previous-update", **PLAIN})


@pytest.fixture
def coordinator(tmp_path: Any) -> Coordinator:
    """As much of one as is asked."""
    return cast("Coordinator", SimpleNamespace(blobs=FileBlobs(tmp_path / "blobs")))


def stored(coordinator: Coordinator, weights: dict[str, np.ndarray[Any, Any]]) -> str:
    place = models_of("sepsis")
    with coordinator.blobs.receive(1 << 20) as incoming:
        incoming.write(encode(weights))
        return coordinator.blobs.keep(incoming, place).sha256


def of(coordinator: Coordinator, chosen: StudySettings, weights: str, previous: str | None) -> float:
    return anchor_of(coordinator, "sepsis", chosen, spec_of(FIRST), weights, previous)


def test_local_training_starts_from_the_norm_of_the_weights(coordinator: Coordinator) -> None:
    chosen = settings(training={"algorithm": "fedavg", "local_steps": 2})
    assert of(coordinator, chosen, stored(coordinator, FIRST), None) == 5.0
    assert of(coordinator, chosen, stored(coordinator, SECOND), stored(coordinator, FIRST)) == 12.0


def test_clipping_around_the_last_round_starts_from_its_step(coordinator: Coordinator) -> None:
    first, second = stored(coordinator, FIRST), stored(coordinator, SECOND)
    # The first round has no step behind it.
    assert of(coordinator, AROUND, first, None) == 0.0
    assert of(coordinator, AROUND, second, first) == pytest.approx(math.sqrt(9 + 64) / 0.5)


def test_a_study_that_needs_no_model_reads_none(coordinator: Coordinator) -> None:
    assert of(coordinator, settings(), "0" * 64, None) == 0.0


def test_each_pair_is_read_once_and_a_lost_file_is_said(coordinator: Coordinator) -> None:
    first, second = stored(coordinator, FIRST), stored(coordinator, SECOND)
    found = of(coordinator, AROUND, second, first)
    coordinator.blobs.remove(models_of("sepsis"), first)
    assert of(coordinator, AROUND, second, first) == found
    with pytest.raises(FileNotFoundError, match="restore the blobs"):
        of(coordinator, AROUND, first, second)
