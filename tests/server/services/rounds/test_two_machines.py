"""An API process and a worker on one database and one object store, without a disk that both see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from server.db.blobs import ROUNDS, StoreAway
from server.db.object_blobs import ObjectBlobs
from server.services import views
from server.services.coordinator import Coordinator
from server.worker import Worker
from study_protocol.study.messages import AssignmentBody
from tests.factories.hospital_double import update
from tests.factories.masked_rounds import begin
from tests.factories.masked_studies import STEPS
from tests.factories.settings import settings
from tests.factories.studies import open_study, read_model, work
from tests.harness.object_store import ObjectStore
from wardround.demo.processes import free_port


@dataclass
class Machines:
    """`api` takes in what hospitals send, `worker` moves the rounds on. Each has a cache of its own."""

    api: Coordinator
    worker: Coordinator
    objects: Callable[[], list[str]]
    store_is_away: Coordinator


@pytest.fixture
def machines(coordinator: Coordinator, object_store: ObjectStore, tmp_path: Path) -> Machines:
    address = object_store.bucket()
    nobody = ObjectStore(tmp_path / "log", None, port=free_port())  # type: ignore[arg-type]

    def machine(name: str, store: ObjectStore, **options: float) -> Coordinator:
        blobs = ObjectBlobs(store.store(address, **options), tmp_path / name, 1 << 30)
        return replace(coordinator, blobs=blobs)

    return Machines(
        machine("api", object_store),
        machine("worker", object_store),
        lambda: object_store.keys(address),
        machine("worker", nobody, patience_seconds=0.1),
    )


@pytest.mark.quick("sqlite")
def test_rounds_go_from_machine_to_machine_and_leave_only_models(machines: Machines) -> None:
    optimiser = {"name": "adam", "learning_rate": 0.5}
    hospitals = open_study(machines.api, training={"algorithm": "fedsgd", "optimiser": optimiser})
    for number in (1, 2):
        work(machines.worker)
        for hospital in hospitals:
            hospital.send(number, update(0.4))
        assert len([key for key in machines.objects() if key.startswith(ROUNDS)]) == 3
        work(machines.worker)
    np.testing.assert_allclose(read_model(machines.api, "sepsis", 2)["weight"], -1.0, rtol=1e-5)
    kinds = sorted(key.split("/")[0] for key in machines.objects())
    assert kinds == ["models", "models", "models", "optimisers"]
    for one in (machines.api, machines.worker):
        assert one.blobs.folders("rounds/sepsis") == []


@pytest.mark.slow
def test_so_do_masked_rounds(machines: Machines) -> None:
    turns = begin(machines.api, settings(masked=True, bayesian=True), reported=(0.5, 0.1, 0.2, 0.3, 0.4))
    for step in STEPS:
        for turn in turns:
            turn.take(step)
        work(machines.worker)
    assert views.show_round(machines.api, "sepsis", 1, with_clients=False).state == "released"
    assert {key.split("/")[0] for key in machines.objects()} == {"models"}


@pytest.mark.slow
def test_a_store_that_goes_away_in_the_middle_of_a_round_delays_it(machines: Machines) -> None:
    """Nothing is decided while nobody can see what is there: neither is an update lost, nor a round abandoned."""
    hospitals = open_study(machines.api, scheme="client")
    work(machines.worker)
    for hospital in hospitals:
        hospital.send(1, update(0.1))
    shown: list[str] = []
    for _ in range(8):
        with pytest.raises(StoreAway):
            Worker(machines.store_is_away, owner="one").step()
        shown.append(views.show_round(machines.api, "sepsis", 1, with_clients=False).state)
        # One step with the store, then it is away again.
        if not Worker(machines.worker, owner="one").step():
            break
    assert "abandoned" not in shown
    assert views.show_round(machines.api, "sepsis", 1, with_clients=False).state == "released"
    assert views.locate_model(machines.api, "sepsis").info.version >= 1


@pytest.mark.quick("sqlite")
def test_an_assignment_names_a_model_that_the_other_machine_can_give(machines: Machines) -> None:
    hospitals = open_study(machines.worker)
    work(machines.worker)
    given = hospitals[0].assignment()
    assert given is not None
    body: AssignmentBody = given.assignment
    with views.locate_model(machines.api, "sepsis", body.model.version).open() as file:
        assert file.bytes == body.model.bytes
