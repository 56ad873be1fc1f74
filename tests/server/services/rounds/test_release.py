"""Settled rounds on their way to a published model: files that are lost, numbers that are none, optimisers."""

from __future__ import annotations

import numpy as np
import pytest

from server.db.blobs import optimisers_of, update_of
from server.domain.errors import Rejected
from server.services import views
from server.services.coordinator import Coordinator
from server.services.studies import lifecycle
from server.worker import Worker
from tests.factories.clear_rounds import collecting, kinds, shown
from tests.factories.hospital_double import update
from tests.factories.studies import read_model, work


@pytest.mark.quick("sqlite")
def test_a_stop_between_charge_and_release_releases_nothing(coordinator: Coordinator) -> None:
    hospitals = collecting(coordinator)
    for hospital in hospitals:
        hospital.send(1, update())
    worker = Worker(coordinator)
    assert worker.step()
    assert shown(coordinator).state == "settled"
    lifecycle.act(coordinator, "sepsis", "stop")
    while worker.step():
        pass
    assert kinds(coordinator) == ["opened", "reserved", "settled", "finished"]
    with pytest.raises(Rejected, match="unknown-model"):
        views.locate_model(coordinator, "sepsis", 1)


@pytest.mark.quick("sqlite")
def test_one_that_got_lost_after_the_charge_does_too(coordinator: Coordinator) -> None:
    hospitals = collecting(coordinator)
    for hospital in hospitals:
        digest = hospital.send(1, update()).body.sha256
    worker = Worker(coordinator)
    worker.step()
    coordinator.blobs.remove(update_of("sepsis", 1, "h2"), digest)
    while worker.step():
        pass
    assert (shown(coordinator).state, shown(coordinator).reason) == ("abandoned", "updates-lost")
    assert kinds(coordinator)[:3] == ["opened", "reserved", "settled"]


@pytest.mark.quick("sqlite")
def test_an_aggregate_that_is_not_finite_is_never_released(coordinator: Coordinator) -> None:
    hospitals = collecting(coordinator, training={"optimiser": {"name": "plain", "learning_rate": 1e40}})
    for hospital in hospitals:
        hospital.send(1, update(0.4))
    work(coordinator)
    assert (shown(coordinator).state, shown(coordinator).reason) == ("abandoned", "not-finite")
    assert kinds(coordinator)[:3] == ["opened", "reserved", "settled"]
    assert views.locate_model(coordinator, "sepsis").info.version == 0


@pytest.mark.quick("sqlite")
def test_a_model_that_no_hospital_would_train_from_is_never_released(coordinator: Coordinator) -> None:
    hospitals = collecting(coordinator, training={"optimiser": {"name": "plain", "learning_rate": 2.0**34}})
    for hospital in hospitals:
        hospital.send(1, update(0.4))
    work(coordinator)
    assert (shown(coordinator).state, shown(coordinator).reason) == ("abandoned", "weights-out-of-bounds")
    assert kinds(coordinator)[:3] == ["opened", "reserved", "settled"]
    assert views.locate_model(coordinator, "sepsis").info.version == 0


@pytest.mark.quick("sqlite-adam")
@pytest.mark.parametrize("name", ["momentum", "adam"])
def test_an_optimiser_goes_on_from_release_to_release(coordinator: Coordinator, name: str) -> None:
    optimiser = {"name": name, "learning_rate": 0.5}
    hospitals = collecting(coordinator, training={"algorithm": "fedsgd", "optimiser": optimiser})
    for number in (1, 2, 3):
        for hospital in hospitals:
            hospital.send(number, update(0.4))
        work(coordinator)
    # A constant gradient of 3 · 0.4 / 4 = 0.3: heavy ball 0.3 · (1 + 1.9 + 2.71); Adam steps by its learning rate.
    expected = -0.5 * 0.3 * (1 + 1.9 + 2.71) if name == "momentum" else -0.5 * 3
    np.testing.assert_allclose(read_model(coordinator, "sepsis", 3)["weight"], expected, rtol=1e-5)
    # Of the states only the newest is kept.
    assert len(coordinator.blobs.hashes(optimisers_of("sepsis"))) == 1
