"""The coordinator under a noise schedule: one place for each round, over restarts in every state and lost rounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from numpy.typing import NDArray

from server.domain.admission import coordinates
from server.domain.bounds import longest_update
from server.domain.errors import Rejected
from server.services.coordinator import Coordinator
from server.worker import Worker
from study_protocol.randomness.discrete_gaussian import DiscreteGaussianNoise
from study_protocol.wire.tensors import spec_of
from tests.factories.clear_rounds import kinds, shown
from tests.factories.hospital_double import MODEL, UseCases, update
from tests.factories.settings import limit, settings
from tests.factories.studies import FakeClock, open_study, work

FALLING = [{"rounds": 1, "factor": 2.0}, {"rounds": 2, "factor": 1.5}, {"rounds": 1, "factor": 1.0}]
CLIENTS = [limit("client", epsilon=900.0)]


@dataclass
class MeasuredNoise:
    """The real noise, and the standard deviation of every draw in grid steps."""

    stds: list[float] = field(default_factory=list[float])
    source: DiscreteGaussianNoise = field(default_factory=DiscreteGaussianNoise)

    def of(self, round_number: int) -> Callable[[float, int], NDArray[np.int64]]:
        draw = self.source.of(round_number)

        def measured(std: float, size: int) -> NDArray[np.int64]:
            self.stds.append(std)
            return draw(std, size)

        return measured


def restarted(coordinator: Coordinator, noise: MeasuredNoise | None = None) -> Coordinator:
    """Another process on the same database and files."""
    parts = {**vars(coordinator), "assignments": {}}
    return Coordinator(**parts if noise is None else {**parts, "noise": noise})


@pytest.mark.slow
def test_a_round_keeps_its_place_over_restarts_and_a_lost_one_takes_it_along(
    coordinator: Coordinator, clock: FakeClock
) -> None:
    chosen = settings("client", limits=CLIENTS, max_steps=4, noise_schedule=FALLING)
    noise = MeasuredNoise()
    hospitals = open_study(coordinator, settings=chosen)
    for number in (1, 2, 3, 4):
        # The lease of the last process runs out.
        clock.sleep(60)
        work(restarted(coordinator, noise))
        for hospital in hospitals:
            # Each asks another process.
            hospital.way = UseCases(restarted(coordinator))
            given = hospital.assignment()
            assert given is not None
            assert (given.assignment.round, given.assignment.attempt) == (number, number)
        if number == 2:
            clock.sleep(600)
            work(restarted(coordinator))
            assert shown(coordinator, 2).state == "abandoned"
            clock.sleep(60)
            continue
        for hospital in hospitals:
            hospital.send(number, update(0.1))
        # Killed between charge and release, and when the noise was drawn.
        assert Worker(restarted(coordinator, noise)).step()
        assert shown(coordinator, number).state == "settled"
        clock.sleep(60)
        assert Worker(restarted(coordinator, noise)).step()
        assert shown(coordinator, number).state == "released"
    clock.sleep(60)
    work(restarted(coordinator))
    assert kinds(coordinator)[-1] == "finished"
    central = [chosen.at_attempt(number).privacy.noise_of_updates(coordinates(spec_of(MODEL))) for number in (1, 3, 4)]
    assert list(dict.fromkeys(noise.stds)) == [one.units for one in central if one is not None]


@pytest.mark.quick("sqlite")
def test_an_update_is_bounded_by_the_noise_of_its_place(coordinator: Coordinator) -> None:
    loud = [{"rounds": 1, "factor": 50.0}, {"rounds": 2, "factor": 0.1}]
    chosen = settings(noise_multiplier=4.0, noise_schedule=loud)
    size = coordinates(spec_of(MODEL))
    first, second = (longest_update(chosen.at_attempt(place), size, 1, anchor=0.0) for place in (1, 2))
    between = (first + second) / 2 / np.sqrt(size)
    hospitals = open_study(coordinator, settings=chosen)
    work(coordinator)
    for hospital in hospitals:
        hospital.send(1, update(between))
    work(coordinator)
    assert shown(coordinator).state == "released"
    with pytest.raises(Rejected, match="norm-exceeded"):
        hospitals[0].send(2, update(between))


@pytest.mark.quick("sqlite")
def test_an_assignment_of_a_study_without_a_schedule_names_no_place(coordinator: Coordinator) -> None:
    hospitals = open_study(coordinator)
    work(coordinator)
    given = hospitals[0].assignment()
    assert given is not None
    assert given.assignment.attempt is None
    assert "attempt" not in given.model_dump(mode="json")["assignment"]
