"""Noise of several steps drawn in one go: the law's own numbers, each of them once, and seeded streams as ever."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats

from private_learning.gradients import ClippedSum
from private_learning.training import noise_ahead
from private_learning.training.noise import GridNoise
from private_learning.training.noise_ahead import MIN_THREAD_NUMBERS, NoiseAhead
from study_protocol.randomness.discrete_gaussian import CHUNK, sampler
from study_protocol.randomness.source import RandomSource, SecureSource, SeededSource

LAW = sampler(1e6)


class Counted(SecureSource):
    """Counts the words for the numbers, two bytes each: every number takes one first."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int] = []

    def words(self, count: int, dtype: type[np.unsignedinteger]) -> NDArray[np.unsignedinteger]:
        self.asked.append(count)
        return super().words(count, dtype)


def step_of(ahead: NoiseAhead, source: RandomSource) -> NDArray[np.int64]:
    return np.concatenate([piece.astype(np.int64) for _, piece in ahead.of_step(source)])


def test_numbers_drawn_ahead_follow_the_law_and_none_comes_twice() -> None:
    ahead, source = NoiseAhead(LAW, 1000, 50), SecureSource()
    drawn = np.concatenate([step_of(ahead, source) for _ in range(50)])
    # False alarm: one in a million for the test of the law. Of 50,000 numbers of deviation 10⁶ about 350 pairs are
    # equal by chance; a step that came twice would make 1,000 more.
    assert stats.kstest(drawn / LAW.std, "norm").pvalue > 1e-6
    assert len(drawn) - len(np.unique(drawn)) < 600


def test_no_more_is_drawn_than_the_steps_need() -> None:
    few, source = NoiseAhead(LAW, 10, 3), Counted()
    step_of(few, source)
    at_once = list(source.asked)
    assert at_once[0] == 30
    for _ in range(2):
        step_of(few, source)
    assert source.asked == at_once
    many, source = NoiseAhead(LAW, 1000, 10**6), Counted()
    step_of(many, source)
    assert source.asked[0] == CHUNK // 1000 * 1000


def test_what_was_used_is_zeroed() -> None:
    ahead = NoiseAhead(LAW, 100, 10)
    pieces = ahead.of_step(SecureSource())
    _, piece = next(pieces)
    assert piece.any()
    assert not list(pieces)
    assert not piece.any()


@pytest.mark.parametrize("size", [1, 62, CHUNK + 7, MIN_THREAD_NUMBERS + 7])
@pytest.mark.parametrize("cores", [1, 2])
def test_a_seeded_stream_gives_what_it_gives_without(size: int, cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise_ahead, "another_core", lambda: cores > 1)

    def stream(step: int) -> SeededSource:
        return SeededSource(step, allow_insecure=True)

    ahead = NoiseAhead(LAW, size, 5)
    for step in range(3):
        np.testing.assert_array_equal(step_of(ahead, stream(step)), LAW.sample(size, stream(step)))


def test_a_forked_process_draws_its_own() -> None:
    ahead, source = NoiseAhead(LAW, 50, 10), SecureSource()
    step_of(ahead, source)
    there, here = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(here, step_of(ahead, source).tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = np.frombuffer(os.read(there, 400), np.int64)
    os.close(there)
    os.close(here)
    # Equal by chance in one place or more: less than one in 10⁴; all of them would be equal if it were shared.
    assert (theirs == step_of(ahead, source)).sum() < 3


def test_a_sum_whose_noise_falls_short_is_not_released() -> None:
    clipped = ClippedSum({"w": torch.zeros(30)}, torch.zeros(0), 1.0)
    grid = GridNoise.calibrated(1.0, 30, noise_multiplier=1.0)
    spent = NoiseAhead(grid.law, 30, 1).of_step(SecureSource())
    assert len(list(spent)) == 1
    with pytest.raises(RuntimeError, match="noise for 0 of 30"):
        grid.completed(clipped, spent)


def test_long_vectors_are_drawn_while_the_caller_does_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise_ahead, "another_core", lambda: True)
    drawn, caller = threading.Event(), threading.get_ident()

    class Watched(SecureSource):
        def words(self, count: int, dtype: type[np.unsignedinteger]) -> NDArray[np.unsignedinteger]:
            assert threading.get_ident() != caller
            drawn.set()
            return super().words(count, dtype)

    pieces = NoiseAhead(LAW, MIN_THREAD_NUMBERS, 1).of_step(Watched())
    # Nothing was asked for yet.
    assert drawn.wait(60)
    held = [piece for _, piece in pieces]
    assert sum(map(len, held)) == MIN_THREAD_NUMBERS
    assert not any(piece.any() for piece in held)


def test_what_stops_the_thread_stops_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise_ahead, "another_core", lambda: True)

    class Broken(SecureSource):
        def read(self, size: int) -> bytes:
            raise OSError("no randomness")

    clipped = ClippedSum({"w": torch.zeros(MIN_THREAD_NUMBERS)}, torch.zeros(0), 1.0)
    grid = GridNoise.calibrated(1.0, MIN_THREAD_NUMBERS, noise_multiplier=1.0)
    with pytest.raises(OSError, match="no randomness"):
        grid.completed(clipped, NoiseAhead(grid.law, MIN_THREAD_NUMBERS, 1).of_step(Broken()))
