"""Settled rounds on their way to a published model: files that are lost, numbers that are none, optimisers."""

from __future__ import annotations

import numpy as np
import pytest

from server.db.blobs import models_of, optimisers_of, update_of
from server.db.leases import Lease, acquire
from server.domain.errors import Rejected
from server.domain.rounds import IllegalMove
from server.services import views
from server.services.coordinator import Coordinator
from server.services.rounds.release import release_round
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


@pytest.mark.slow
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


def settled(coordinator: Coordinator) -> Lease:
    """Round 1 is charged, and nothing is published."""
    for hospital in collecting(coordinator, training={"algorithm": "fedavg"}):
        hospital.send(1, update(0.4))
    assert Worker(coordinator, owner="test").step()
    assert shown(coordinator).state == "settled"
    lease = coordinator.database.write("acquire-lease", lambda tx: acquire(tx, 1, "test", 60.0))
    assert lease is not None
    return lease


@pytest.mark.quick("sqlite")
def test_a_release_renews_its_lease_and_happens_once(coordinator: Coordinator) -> None:
    lease, renewed = settled(coordinator), list[int]()
    release_round(coordinator, lease, "sepsis", 1, lambda: renewed.append(1))
    assert renewed
    # Three updates of 0.4 over the public constant 4.
    np.testing.assert_allclose(read_model(coordinator, "sepsis", 1)["weight"], 0.3, rtol=1e-6)
    with pytest.raises(IllegalMove):
        release_round(coordinator, lease, "sepsis", 1, lambda: None)
    assert views.locate_model(coordinator, "sepsis").info.version == 1


@pytest.mark.slow
def test_a_base_model_that_is_gone_ends_no_round(coordinator: Coordinator) -> None:
    """A later round would need it, too: it is restored, and then the release goes on."""
    lease = settled(coordinator)
    base = views.locate_model(coordinator, "sepsis", 0)
    with base.open() as file:
        kept = file.read(0, 1 << 20)
    coordinator.blobs.remove(models_of("sepsis"), base.info.sha256)
    with pytest.raises(FileNotFoundError, match="restore the blobs from their backup"):
        release_round(coordinator, lease, "sepsis", 1, lambda: None)
    assert shown(coordinator).state == "settled"
    with coordinator.blobs.receive(1 << 20) as incoming:
        incoming.write(kept)
        coordinator.blobs.keep(incoming, models_of("sepsis"))
    release_round(coordinator, lease, "sepsis", 1, lambda: None)
    assert shown(coordinator).state == "released"
