"""Shares of one noise: what they add up to, in which law, on which grid, and whether sums with them fit the ring."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as how
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from accounting.mechanisms.lattice import summation_error
from accounting.units import Level
from client_sdk.errors import TrainingStopped
from client_sdk.secure_sum import delivery
from client_sdk.secure_sum.delivery import ring_vectors_of
from private_learning.training import Contribution
from study_protocol.randomness.discrete_gaussian import MAX_STD, DiscreteGaussian, sampler
from study_protocol.randomness.source import SeededRandomness
from study_protocol.secure_sum.messages import ParameterFault, SessionParameters
from study_protocol.secure_sum.parameters import SessionPlan, vectors_of
from study_protocol.secure_sum.vectors import VectorSpec, largest_cap
from study_protocol.study.central_noise import MAX_SHARE, CentralNoise
from study_protocol.study.plan_of import plan_of
from study_protocol.study.settings import StudySettings
from study_protocol.wire.tensors import Spec
from tests.factories.settings import MASKING, settings

SIZE = 20_000
SPEC: Spec = {"weight": ((SIZE,), "float32")}
HOSPITALS, HONEST = 5, 3
MULTIPLIER = 0.8
Sum = tuple[NDArray[np.float64], CentralNoise, VectorSpec]


def study(**options: Any) -> StudySettings:
    return settings("client-distributed", noise_multiplier=MULTIPLIER, **options)


def summed(adders: int, *, seed: int = 1) -> Sum:
    """The noise in a sum of so many hospitals' words, in grid steps: their updates, rounded, are taken off again."""
    privacy = study().privacy
    (spec,) = vectors_of(study(), SPEC, HOSPITALS)
    noise = privacy.noise_of_updates(SIZE)
    assert noise is not None
    randomness, total = SeededRandomness(seed, allow_insecure=True), np.zeros(SIZE, spec.dtype)
    exact = np.zeros(SIZE)
    for number in range(adders):
        update = np.random.default_rng(number).normal(0, 1 / math.sqrt(SIZE), SIZE).astype(np.float32)
        update *= np.float32(0.99 / np.linalg.norm(update))
        made, own = Contribution({"weight": update}, None), randomness.in_round(f"h{number}", 1)
        total += ring_vectors_of(privacy, SPEC, [spec], made, None, records=10, randomness=own)["update"]
        exact += np.rint(update.astype(np.float64) / noise.spacing)
    return total.view(f"<i{spec.dtype.itemsize}") - exact, noise, spec


def too_small(found: NDArray[np.float64], std: float) -> float:
    """p-value of a variance below that of `std`: Σx²/s² is chi-square with one degree of freedom a coordinate."""
    return float(stats.chi2.cdf(float(found @ found) / std**2, found.size))


def test_honest_shares_have_the_variance_that_is_stated_and_all_of_them_more() -> None:
    """False alarm: 1e-9 on either side of each of the two."""
    for adders in (HONEST, HOSPITALS):
        found, noise, _ = summed(adders)
        std = noise.units * math.sqrt(adders / HONEST)
        assert 1e-9 < too_small(found, std) < 1 - 1e-9
        assert abs(found.mean()) < 7 * std / math.sqrt(SIZE)
    # Independent of each other and from round to round: the same coordinates of two sums do not agree.
    one, other = summed(HONEST)[0], summed(HONEST, seed=2)[0]
    assert abs(np.corrcoef(one, other)[0, 1]) < 7 / math.sqrt(SIZE)


def test_the_law_is_that_of_one_noise() -> None:
    """Kolmogorov and Smirnov's distance from the Gaussian that 2^16 steps to a deviation cannot be told from.

    False alarm 1e-9.
    """
    found, noise, _ = summed(HONEST)
    assert noise.units > 2.0**16
    assert stats.kstest(found / noise.units, "norm").pvalue > 1e-9


@pytest.mark.parametrize(
    "broken",
    [lambda std: std / math.sqrt(2), lambda std: std / math.sqrt(HONEST), lambda std: std * 0.95],
    ids=["half of the variance", "of a share of a share", "a twentieth less"],
)
def test_too_little_noise_is_caught(monkeypatch: pytest.MonkeyPatch, broken: Callable[[float], float]) -> None:
    """At the same bounds: of 20,000 numbers a deviation 5 % smaller lies ten standard errors off."""
    monkeypatch.setattr(delivery, "sampler", lambda std: sampler(broken(std)))
    found, noise, _ = summed(HONEST)
    assert too_small(found, noise.units) < 1e-9


def test_the_noise_that_is_stated_is_of_the_whole_sum_and_covers_the_grid() -> None:
    _, noise, spec = summed(1)
    assert spec.scale_bits == -math.log2(noise.spacing)
    stated = plan_of(study()).mechanism(Level.CLIENT)
    assert stated.noise_multiplier == pytest.approx(MULTIPLIER, rel=1e-15)
    assert noise.std >= stated.noise_multiplier * noise.sensitivity
    assert noise.sensitivity > study().privacy.clip_norm


def test_the_same_address_gives_the_same_words_and_another_round_others() -> None:
    privacy = study().privacy
    (spec,) = vectors_of(study(), SPEC, HOSPITALS)
    made = Contribution({"weight": np.zeros(SIZE, np.float32)}, None)

    def words(party: str, round: int) -> bytes:
        own = SeededRandomness(1, allow_insecure=True).in_round(party, round)
        return ring_vectors_of(privacy, SPEC, [spec], made, None, records=1, randomness=own)["update"].tobytes()

    assert words("h1", 1) == words("h1", 1)
    assert len({words("h1", 1), words("h1", 2), words("h2", 1)}) == 3


def test_an_update_beyond_the_clip_norm_or_off_the_grid_is_not_sent() -> None:
    privacy, own = study().privacy, SeededRandomness(1, allow_insecure=True).in_round("h1", 1)
    (spec,) = vectors_of(study(), SPEC, HOSPITALS)
    long = Contribution({"weight": np.full(SIZE, 1e3, np.float32)}, None)
    with pytest.raises(TrainingStopped, match="vector update"):
        ring_vectors_of(privacy, SPEC, [spec], long, None, records=1, randomness=own)
    fair = Contribution({"weight": np.zeros(SIZE, np.float32)}, None)
    coarse = spec.model_copy(update={"scale_bits": spec.scale_bits - 1})
    with pytest.raises(TrainingStopped, match="vector update"):
        ring_vectors_of(privacy, SPEC, [coarse], fair, None, records=1, randomness=own)


@given(
    clip=st.floats(1e-3, 1e3),
    multiplier=st.floats(0.01, 1e3),
    coordinates=st.integers(1, 10**8),
    shares=st.integers(2, 1_000),
)
def test_shares_add_up_to_what_is_charged_on_any_grid(
    clip: float, multiplier: float, coordinates: int, shares: int
) -> None:
    noise = CentralNoise(clip, multiplier, coordinates, shares)
    assert noise.share * math.sqrt(shares) >= noise.units
    assert noise.share <= noise.units / math.sqrt(shares) * (1 + 1e-12)
    assert noise.std_of(shares) >= noise.std >= multiplier * noise.sensitivity
    # At least 2^16 steps to the whole noise: a thousand shares of it are far from too narrow, and cost nothing.
    assert noise.fault is None or noise.share > MAX_SHARE
    assert summation_error(min(noise.share, MAX_SHARE), shares) == 0.0


@pytest.mark.parametrize("std", [3.0, 3.7, 64.0, 2072.3, 1e6, 2.0**39.5])
def test_no_share_is_longer_than_a_word_has_room_for(std: float) -> None:
    noise = CentralNoise(1.0, 1.0, 16, 4)
    law = DiscreteGaussian(std)
    longest = max(-int(law.starts[0]), int(law.starts[-1]) + (1 << law.bits) - 1)
    assert longest <= math.ceil(16 * std)
    assert noise.longest_share == math.ceil(16 * noise.share)
    assert MAX_SHARE == MAX_STD


def test_noise_that_cannot_be_drawn_in_shares_is_refused() -> None:
    assert "3 grid steps" in str(CentralNoise(1.0, 1.0, 1, 10**12).fault)
    assert "too large" in str(CentralNoise(1.0, 1e12, 1, 4).fault)
    with pytest.raises(ValueError, match="noise_multiplier: the noise is too large to be drawn"):
        settings("client-distributed", noise_multiplier=1e12)
    # One coordinate may have it, a large model not: its grid is finer.
    large = settings("client-distributed", noise_multiplier=2.0**24)
    assert vectors_of(large, {"weight": ((1,), "float32")}, 5)
    with pytest.raises(ParameterFault, match="noise_multiplier: the noise is too large"):
        vectors_of(large, {"weight": ((10**6,), "float32")}, 5)


@how(max_examples=150)
@given(
    colluders=st.integers(1, 6),
    more=st.integers(0, 8),
    allow_three=st.booleans(),
    clients=st.integers(3, 30),
    clip=st.floats(1e-6, 1e6),
    multiplier=st.floats(1e-3, 1e9),
    size=st.sampled_from([1, 3, 1_000, 10**6, 10**8]),
)
def test_a_session_that_is_opened_has_room_for_every_share_and_all_the_noise(
    colluders: int, more: int, allow_three: bool, clients: int, clip: float, multiplier: float, size: int
) -> None:
    """Settings -> session: whatever is accepted is sound, whatever is not says which setting it was."""
    least = 3 if allow_three and colluders == 1 else colluders + 3
    masking = MASKING | {"colluders": colluders, "min_survivors": least + more, "allow_three": allow_three}
    options = {"masking": masking, "clip_norm": clip, "noise_multiplier": multiplier}
    opened = session_of(clients, size, schedule={"min_clients": least + more}, **options)
    if isinstance(opened, str):
        assert "noise_multiplier" in opened or "clients" in opened
        return
    chosen, session = opened
    (vector,) = session.vectors
    noise = chosen.privacy.noise_of_updates(size)
    assert noise is not None
    assert noise.fault is None
    assert session.min_survivors - session.colluders >= noise.shares == plan_of(chosen).honest_survivors
    # Every word of a sum: the longest update with its rounding and the longest draw, from everybody.
    word = math.ceil(chosen.privacy.clip_norm / noise.spacing) + 1 + noise.longest_share
    assert word <= vector.cap <= largest_cap(clients, vector.ring_bits)
    assert 2.0**-vector.scale_bits == noise.spacing


def session_of(clients: int, size: int, **options: Any) -> tuple[StudySettings, SessionParameters] | str:
    """The session of these settings; a text: why there is none."""
    try:
        chosen = settings("client-distributed", **options)
        plan = SessionPlan.of(
            chosen,
            {"weight": ((size,), "float32")},
            study="s",
            round_number=1,
            roster="0" * 64,
            model="0" * 64,
            ledger=(2, "0" * 64),
        )
        return chosen, plan.parameters(clients, session=bytes(32), now=0.0)
    except ValueError as error:
        return str(error)
