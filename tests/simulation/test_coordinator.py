"""The coordinator's side of a simulated study: sums by hand, rounds that fail, and going on."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from server.domain.admission import Findings
from simulation.backends.base import Loop
from simulation.coordinator import RoundAnswers, SimulatedCoordinator, StudyPaused
from simulation.engine import Engine, RoundShown
from study_protocol.randomness.source import SeededRandomness
from study_protocol.wire.tensor_files import Arrays
from tests.factories.settings import limit, settings
from tests.simulation.test_engine import clients


def test_rounds_that_come_to_nothing_pause_a_study_as_in_service() -> None:
    chosen = settings(schedule={"min_clients": 5}, max_steps=30, limits=[limit("instance", epsilon=900.0)])
    with pytest.raises(StudyPaused, match="rounds in a row came to nothing"):
        Engine(chosen, clients(4), 1, Loop).run()


def test_too_few_clients_for_a_masked_sum_cost_nothing() -> None:
    chosen = settings(masked=True)
    shown: list[RoundShown] = []
    with pytest.raises(StudyPaused):
        Engine(chosen, clients(3), 1, Loop).run(shown.append)
    assert {one.reason for one in shown} == {"too-few-clients"}
    assert {one.spent for one in shown} == {(0.0,)}


NAMES = ("a", "b", "c")
START = {"bias": np.zeros(1, np.float32), "weight": np.array([[1.0, -2.0]], np.float32)}


def coordinator(**options: Any) -> SimulatedCoordinator:
    chosen = settings(training={"algorithm": "fedavg", "local_steps": 1, "learning_rate": 0.3}, **options)
    return SimulatedCoordinator(chosen, NAMES, START, SeededRandomness(1, allow_insecure=True))


def answers(*numbers: float) -> RoundAnswers:
    """One update for each number, which all its coordinates are."""
    updates = [
        Arrays({f"update/{name}": np.full_like(array, number) for name, array in START.items()}) for number in numbers
    ]
    return RoundAnswers(updates, tuple(Findings(None, None) for _ in numbers), {})


def test_a_round_moves_the_weights_by_the_sum_over_the_public_number_of_clients() -> None:
    simulated = coordinator()
    opening = simulated.begin()
    assert opening is not None
    assert (opening.round, opening.drawn, opening.vectors) == (1, (0, 1, 2), ())
    simulated.close(opening, answers(0.5, 0.25, -0.1))
    # Four clients are expected, and three are there.
    for name, array in START.items():
        np.testing.assert_allclose(simulated.weights[name], array + 0.65 / 4, rtol=1e-6)
    assert (simulated.version, simulated.reason) == (1, None)
    assert simulated.previous == {name: START[name] for name in START}
    assert [(event.kind, event.round) for event in simulated.events] == [("reserved", 1), ("settled", 1)]


def test_too_few_clients_leave_the_weights_and_cost_nothing() -> None:
    simulated = coordinator(client_sampling_rate=1e-9, expected_clients=1.0)
    opening = simulated.begin()
    assert opening is not None
    assert opening.drawn == ()
    simulated.close(opening, answers())
    assert simulated.weights == START
    assert simulated.version == 0
    assert simulated.reason is not None
    assert [event.kind for event in simulated.events] == ["reserved", "cancelled"]
    assert simulated.spent() == (0.0,)


def test_a_round_goes_on_from_what_was_saved_before_it() -> None:
    first = coordinator()
    opening = first.begin()
    assert opening is not None
    first.close(opening, answers(0.5, 0.25, -0.1))
    saved, arrays = first.state()
    second = coordinator()
    second.restore(json.loads(json.dumps(saved)), arrays)
    for simulated in (first, second):
        later = simulated.begin()
        assert later is not None
        simulated.close(later, answers(0.1, 0.2, 0.3))
    assert second.version == first.version == 2
    assert all(np.array_equal(second.weights[name], array) for name, array in first.weights.items())
    assert second.spent() == first.spent()
    assert second.events == first.events


def test_rounds_end_with_the_budget_and_the_end_is_the_last_event() -> None:
    simulated = coordinator(max_steps=2)
    while simulated.stop_reason is None:
        opening = simulated.begin()
        assert opening is not None
        simulated.close(opening, answers(0.0, 0.0, 0.0))
    assert simulated.stop_reason == "max-steps-reached"
    simulated.finish("max-steps-reached")
    last = simulated.events[-1]
    assert (last.kind, last.round, dict(last.body)) == (
        "finished",
        None,
        {"reason": "max-steps-reached", "report": None},
    )


def test_an_adaptive_clip_norm_moves_by_the_noised_bits_and_is_kept() -> None:
    """Two of three clients with whole batches of short gradients: by e^(−0.2 · (share − 0.5))."""
    chosen = settings(adaptive_clip={"quantile": 0.5, "rate": 0.2}, noise_multiplier=0.5, expected_clients=3.0)
    simulated = SimulatedCoordinator(chosen, NAMES, START, SeededRandomness(1, allow_insecure=True))
    bits = chosen.privacy.clip_bits
    assert bits is not None
    opening = simulated.begin()
    assert opening is not None
    signs = (1.0, 1.0, -1.0)
    gradients = {f"update/{name}": np.zeros_like(array) for name, array in START.items()}
    updates = [Arrays(gradients | {"update/clip-bits": np.array([sign * bits.half], np.float32)}) for sign in signs]
    simulated.close(opening, RoundAnswers(updates, tuple(Findings(None, None) for _ in signs), {}))
    assert simulated.clip_norm == pytest.approx(np.exp(-0.2 * (2 / 3 - 0.5)), rel=1e-6)
    assert set(simulated.weights) == set(START)
    saved, arrays = simulated.state()
    again = SimulatedCoordinator(chosen, NAMES, START, SeededRandomness(1, allow_insecure=True))
    again.restore(json.loads(json.dumps(saved)), arrays)
    assert again.clip_norm == simulated.clip_norm
