"""What is made piece by piece is, to the last bit, what whole arrays make: sums, noise, steps, states."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from server.domain.admission import mechanism
from server.domain.optimiser import begin, new_state, new_weights, released, restored, state_spec
from server.domain.release import OpenedSum, noised_pieces, noised_sum
from study_protocol.randomness.discrete_gaussian import DiscreteGaussianNoise
from study_protocol.randomness.source import SeededRandomness
from study_protocol.secure_sum.vectors import VectorSpec, largest_cap
from study_protocol.study.settings import StudySettings
from study_protocol.wire.tensor_files import PIECE, Arrays, encode_pieces
from study_protocol.wire.tensors import UPDATE, Array, encode, spec_of
from tests.factories.settings import settings

# One tensor of several pieces and a rest, one of exactly one, small ones of no and of three dimensions.
MODEL: dict[str, Array] = {
    "body": np.linspace(-1, 1, 2 * PIECE + 1017, dtype=np.float32).reshape(-1, 1),
    "exact": np.full(PIECE, 0.25, np.float32),
    "cube": np.ones((2, 3, 4), np.float32),
    "scalar": np.array(0.5, np.float32),
}
SPEC = spec_of(MODEL)
OPTIMISERS = ("plain", "momentum", "adam")


def updates(count: int, scale: float) -> list[dict[str, Array]]:
    rng = np.random.default_rng(7)
    return [
        {UPDATE + name: (scale * rng.normal(size=array.shape)).astype(np.float32) for name, array in MODEL.items()}
        for _ in range(count)
    ]


def draws() -> Any:
    return DiscreteGaussianNoise(SeededRandomness(3, allow_insecure=True)).of(1)


def whole_sum(chosen: StudySettings, given: list[dict[str, Array]]) -> dict[str, np.ndarray]:
    """The sum in whole arrays; only the draws are of one piece each, as an address gives them."""
    noise, draw = mechanism(chosen, SPEC), draws()
    found = {}
    for name in sorted(MODEL):
        total = np.zeros(MODEL[name].shape, np.float64)
        for update in given:
            values = update[UPDATE + name].astype(np.float64)
            total += values if noise is None else np.rint(values / noise.spacing)
        if noise is not None:
            flat = total.reshape(-1)
            for start in range(0, flat.size, PIECE):
                flat[start : start + PIECE] += draw(noise.units, flat[start : start + PIECE].size)
            total *= noise.spacing
        found[name] = total
    return found


def whole_step(
    chosen: StudySettings, weights: dict[str, Array], total: dict[str, Array], state: dict[str, Array]
) -> tuple[dict[str, Array], dict[str, Array]]:
    """One step of the server in whole arrays; `state` empty at the beginning."""
    o, sign = chosen.training.optimiser, -1.0 if chosen.training.algorithm == "fedsgd" else 1.0
    steps = int(state["steps"][0]) + 1 if state else 1
    new, saved = {}, {"steps": np.array([steps], np.float64)}
    for name in sorted(weights):
        direction = sign * (total[name] / chosen.privacy.expected_clients)
        first, second = (state.get(p + name, np.zeros(direction.shape, np.float32)) for p in ("first/", "second/"))
        step = direction
        if o.name == "momentum":
            step = o.momentum * first.astype(np.float64) + direction
            saved["first/" + name] = step.astype(np.float32)
        elif o.name == "adam":
            mean = o.momentum * first.astype(np.float64) + (1 - o.momentum) * direction
            square = o.second_momentum * second.astype(np.float64) + (1 - o.second_momentum) * direction**2
            root = np.sqrt(square / (1 - o.second_momentum**steps)) + o.stability
            step = (mean / (1 - o.momentum**steps)) / root
            saved |= {"first/" + name: mean.astype(np.float32), "second/" + name: square.astype(np.float32)}
        new[name] = (weights[name] + o.learning_rate * step).astype(np.float32)
    return new, saved


@pytest.mark.quick(
    "client-adam-fedavg",
    "client-momentum-fedavg",
    "client-momentum-fedsgd",
    "client-plain-fedavg",
    "client-plain-fedsgd",
    "parallel-momentum-fedavg",
    "parallel-plain-fedavg",
    "parallel-plain-fedsgd",
)
@pytest.mark.parametrize("algorithm", ["fedsgd", "fedavg"])
@pytest.mark.parametrize("optimiser", OPTIMISERS)
@pytest.mark.parametrize("scheme", ["parallel", "client"])
def test_every_byte_is_that_of_whole_arrays(scheme: Any, optimiser: str, algorithm: str) -> None:
    chosen = settings(
        scheme=scheme,
        clip_norm=2000.0,
        expected_clients=3.0,
        training={"algorithm": algorithm, "optimiser": {"name": optimiser, "learning_rate": 0.3}},
    )
    given, weights, state = updates(3, 1.0), MODEL, begin()
    saved: dict[str, Array] = {}
    total = noised_sum(chosen, SPEC, [Arrays(update) for update in given], None, draws())
    expected = whole_sum(chosen, given)
    assert {name: values.tobytes() for name, values in total.items()} == {
        name: values.tobytes() for name, values in expected.items()
    }
    for _ in range(2):
        body = b"".join(encode_pieces(SPEC, new_weights(chosen, Arrays(weights), Arrays(total), state)))
        spec = state_spec(chosen.training.optimiser, SPEC)
        kept = b"".join(encode_pieces(spec, new_state(chosen, Arrays(weights), Arrays(total), state)))
        theirs, saved = whole_step(chosen, weights, expected, saved)
        assert body == encode(theirs)
        assert kept == encode(saved)
        weights, state = theirs, restored(Arrays(saved))


@pytest.mark.quick("robustness1")
@pytest.mark.parametrize("robustness", [{"aggregation": "median"}, {"aggregation": "trimmed-mean", "trim": 2}])
def test_so_is_a_median_of_many(robustness: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """However many numbers are sorted at once."""
    chosen = settings(robustness=robustness, expected_clients=4.0, schedule={"min_clients": 5})
    given = updates(11, 1.0)
    found = []
    for at_once in (1 << 30, 1 << 18, 5000):
        monkeypatch.setattr("server.domain.release._SORTED", at_once)
        total = noised_sum(chosen, SPEC, [Arrays(update) for update in given], None, draws())
        found.append({name: values.tobytes() for name, values in total.items()})
    assert found[0] == found[1] == found[2]
    kept = np.sort(np.stack([update[UPDATE + "cube"] for update in given]).astype(np.float64), axis=0)
    kept = kept[5:6] if robustness["aggregation"] == "median" else kept[2:-2]
    np.testing.assert_allclose(np.frombuffer(found[0]["cube"]).reshape(2, 3, 4), kept.mean(axis=0) * 4.0, rtol=1e-12)


@pytest.mark.parametrize("scheme", ["parallel", "client"])
def test_an_opened_sum_is_read_in_pieces(scheme: Any) -> None:
    chosen = settings(scheme=scheme, clip_norm=2000.0)
    noise = mechanism(chosen, SPEC)
    bits = 20 if noise is None else -int(np.log2(noise.spacing))
    size = sum(array.size for array in MODEL.values())
    spec = VectorSpec(
        name="update", encoding="signed", length=size, ring_bits=64, scale_bits=bits, cap=largest_cap(4, 64)
    )
    words = np.random.default_rng(2).integers(-(2**30), 2**30, size).astype("<i8").view("<u8")
    asked: list[int] = []

    def read(start: int, stop: int) -> Any:
        asked.append(stop - start)
        return words[start:stop]

    found = noised_sum(chosen, SPEC, [], OpenedSum(spec, read, np.inf), draws())
    assert max(asked) == PIECE
    assert sum(asked) == size
    draw, place = draws(), 0
    for name in sorted(MODEL):
        units = words[place : place + MODEL[name].size].view("<i8").astype(np.float64)
        place += units.size
        if noise is not None:
            for start in range(0, units.size, PIECE):
                units[start : start + PIECE] += draw(noise.units, units[start : start + PIECE].size)
        np.testing.assert_array_equal(found[name].reshape(-1), units * 2.0**-bits)
    # One that is too long is shorter afterwards, and points where it pointed.
    back = noised_sum(chosen, SPEC, [], OpenedSum(spec, read, 0.125), draws())
    assert np.sqrt(sum(float((values**2).sum()) for values in back.values())) == pytest.approx(0.125)


def test_no_more_than_a_piece_of_every_update_is_asked_for() -> None:
    asked: list[int] = []

    class Watched(Arrays):
        def piece(self, name: str, start: int, stop: int) -> Array:
            asked.append(stop - start)
            return super().piece(name, start, stop)

    for chosen in (settings(), settings(robustness={"aggregation": "median"}, schedule={"min_clients": 3})):
        found = noised_pieces(chosen, SPEC, [Watched(update) for update in updates(3, 1.0)], None, draws())
        assert max(values.size for _, _, values in found) == PIECE
    assert max(asked) == PIECE
    total = {name: np.ones(array.shape) for name, array in MODEL.items()}
    asked.clear()
    weights, _ = released(settings(), Watched(MODEL), Watched(total), begin())
    assert max(asked) == PIECE
    assert set(weights) == set(MODEL)
