"""From a round's result to words: which bin a distance is counted in, what is silent, what is kept."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from client_sdk.errors import LedgerDamaged, TrainingStopped
from client_sdk.secure_sum.delivery import from_bytes, ring_vectors_of, to_bytes
from private_learning.training import Contribution
from study_protocol.randomness.source import SeededRandomness
from study_protocol.secure_sum.parameters import vectors_of
from study_protocol.wire.tensors import spec_of
from tests.factories.hospital_double import MODEL
from tests.factories.settings import settings

SPEC = spec_of(MODEL)
UPDATE = {name: np.full_like(array, 0.01) for name, array in MODEL.items()}
# Big enough for its four shares; published every third round.
NOISED = {"disclosure": "noised", "histogram_noise": {"std": 12.0, "every": 3}}


def words(distance: float | None, *, round: int = 1, update: Any = UPDATE, **options: Any) -> dict[str, Any]:
    chosen = settings("client", masked=True, bayesian=True, noise_multiplier=1.0, **options)
    vectors = vectors_of(chosen, SPEC, 5)
    randomness = SeededRandomness(1, allow_insecure=True).in_round("client", round)
    made = Contribution(update, distance)
    return ring_vectors_of(chosen.privacy, SPEC, vectors, made, None, records=10, randomness=randomness)


@pytest.mark.parametrize("distance", [1e-9, 1 / 64, 1 / 64 + 1e-9, 0.5, 0.7, 1.0])
def test_a_distance_is_counted_in_the_bin_whose_upper_edge_is_the_first_not_below_it(distance: float) -> None:
    counts = words(distance)["terms"]
    assert counts.sum() == 1
    assert int(np.flatnonzero(counts)[0]) == math.ceil(distance * 64) - 1


@pytest.mark.parametrize("distance", [None, math.nan, math.inf, 1.0001])
def test_an_unknown_distance_counts_as_the_largest(distance: float | None) -> None:
    assert np.flatnonzero(words(distance)["terms"]).tolist() == [63]


@pytest.mark.parametrize("round", [1, 2, 4, 5])
def test_a_round_that_publishes_nothing_sends_zeros(round: int) -> None:
    assert not words(0.5, round=round, **NOISED)["terms"].any()


def test_a_published_round_holds_this_clients_share_of_the_noise() -> None:
    drawn = []
    chosen = settings("client", masked=True, bayesian=True, noise_multiplier=1.0, **NOISED)
    (spec,) = [one for one in vectors_of(chosen, SPEC, 5) if one.name == "terms"]
    for seed in range(200):
        randomness = SeededRandomness(seed, allow_insecure=True).in_round("client", 3)
        made = Contribution(UPDATE, 0.5)
        reported = ring_vectors_of(chosen.privacy, SPEC, [spec], made, None, records=10, randomness=randomness)["terms"]
        counts = reported.view("<i4").astype(float)
        counts[31] -= 1
        drawn.append(counts)
    noise = np.concatenate(drawn)
    share = 12.0 / math.sqrt(3)  # four survivors, one of whom colludes
    # 12800 draws; the sample variance is within 5 of its standard errors, false alarm 6e-7.
    assert abs(noise.var() / share**2 - 1) < 5 * math.sqrt(2 / noise.size)
    assert abs(noise.mean()) < 5 * share / math.sqrt(noise.size)


def test_a_value_that_does_not_fit_is_not_sent() -> None:
    with pytest.raises(TrainingStopped, match="vector update"):
        words(0.5, update={name: np.full_like(array, np.nan) for name, array in MODEL.items()})
    with pytest.raises(TrainingStopped, match="vector update"):
        words(0.5, update={name: np.full_like(array, 3.0) for name, array in MODEL.items()})


def test_words_come_back_from_the_disk_bit_for_bit() -> None:
    made = words(0.5)
    back, clear = from_bytes(to_bytes(made, {"update/bias": np.ones(2, np.float32)}))
    assert {name: array.tobytes() for name, array in back.items()} == {n: a.tobytes() for n, a in made.items()}
    assert list(clear) == ["update/bias"]
    with pytest.raises(LedgerDamaged):
        from_bytes(to_bytes(made, {})[:-1])
