"""The sampler's law: exactly, from its own integer tables, and empirically, by goodness of fit."""

from __future__ import annotations

import bisect

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from study_protocol.randomness.discrete_gaussian import DiscreteGaussian, normaliser, sampler
from study_protocol.randomness.source import SecureSource, SeededSource

# Each goodness-of-fit test is fixed by its seed; with another seed it would raise a false alarm with this probability.
FALSE_ALARM = 1e-3


def true_mass(values: NDArray[np.int64], std: float) -> NDArray[np.float64]:
    """P(x) by the defining sum, at 50 digits."""
    with mpmath.workdps(50):
        reach = int(25 * std) + 5
        total = mpmath.fsum(
            mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * mpmath.mpf(std) ** 2)) for k in range(-reach, reach)
        )
        return np.array(
            [float(mpmath.exp(-(mpmath.mpf(int(x)) ** 2) / (2 * mpmath.mpf(std) ** 2)) / total) for x in values]
        )


@pytest.mark.parametrize("std", [0.3, 3.7, 1000.5, 2.0**22 * 1.1, 2.0**39.3])
def test_a_weight_is_found_in_its_cell_at_every_edge_and_between(std: float) -> None:
    law = DiscreteGaussian(std)
    ends = [int(w) for w in law.weights]
    drawn = np.random.default_rng(0).integers(0, ends[-1], 2000, dtype=np.uint64)
    picks = sorted({0, *(e + k for e in ends for k in (-1, 0, 1)), *(int(p) for p in drawn)})
    picks = [p for p in picks if p < ends[-1]]
    found = law.cells(np.array(picks, dtype=np.uint64))
    assert found.tolist() == [bisect.bisect_right(ends, p) for p in picks]


def test_the_weights_of_all_cells_can_be_picked() -> None:
    """Picks are below 2⁶¹: a cell beyond would never be drawn."""
    rng = np.random.default_rng(7)
    # At 0.2 and 2^k the sum of what is left over lies within 1e-8 of a power of two, to which the weights are scaled.
    for std in [0.2, 2.0, 4.0, 64.0, *(2.0 ** rng.uniform(-3, 40, 200)).tolist()]:
        assert int(DiscreteGaussian(std).weights[-1]) <= 2**61


@pytest.mark.parametrize("std", [0.2, 1.0, 3.9, 17.3, 300.5])
def test_the_two_parts_add_up_to_the_law(std: float) -> None:
    """P(rectangles) · rectangle + P(rest) · rest = law, cell by cell, where the rest is what rejection leaves."""
    law = DiscreteGaussian(std)
    width = 1 << law.bits
    values = (law.starts[:, None] + np.arange(width)).ravel()
    mass = true_mass(values, std).reshape(-1, width)
    slots = np.bincount(np.searchsorted(law.starts, law._table[: law.fast]), minlength=len(law.starts))
    rectangles = np.repeat(slots[:, None] / (65536 * width), width, axis=1)
    weights = np.diff(law.weights.astype(object), prepend=0).astype(float)
    left = mass - rectangles
    assert (left >= -1e-18).all(), "no rectangle sticks out of the graph"
    assert (left <= law.bound[:, None]).all(), "no rejection bound is too low"
    kept = weights[:, None] / width * (left / law.bound[:, None])
    rest = kept / kept.sum()
    found = rectangles + (1 - law.fast / 65536) * rest
    np.testing.assert_allclose(found, mass, rtol=1e-9, atol=1e-25)


@pytest.mark.parametrize(("std", "seed"), [(0.3, 1), (1.0, 2), (7.5, 3), (90.0, 4)])
def test_small_deviations_fit_by_chi_square(std: float, seed: int) -> None:
    drawn = sampler(std).sample(400_000, SeededSource(seed, allow_insecure=True))
    values = np.arange(drawn.min(), drawn.max() + 1)
    expected = 400_000 * true_mass(values, std)
    found = np.bincount(drawn - values[0], minlength=len(values))
    big = expected >= 10
    statistic = ((found - expected)[big] ** 2 / expected[big]).sum()
    assert stats.chi2.sf(statistic, big.sum() - 1) > FALSE_ALARM
    # And the tail beyond, lumped: at most as many as a Poisson count of that mean would show.
    assert stats.poisson.sf(found[~big].sum() - 1, 400_000 - expected[big].sum()) > FALSE_ALARM


@pytest.mark.parametrize(("std", "seed"), [(2.0**20 + 0.3, 5), (1.7 * 2.0**22, 6), (2.0**33, 7)])
def test_large_deviations_fit_the_normal_in_the_middle_the_tails_and_the_low_bits(std: float, seed: int) -> None:
    n = 400_000
    drawn = sampler(std).sample(n, SeededSource(seed, allow_insecure=True))
    edges = stats.norm.ppf(np.linspace(0, 1, 2001)[1:-1])
    counts = np.bincount(np.searchsorted(edges, drawn / std), minlength=2000)
    tails = [int((abs(drawn) > k * std).sum()) for k in (3, 4)]
    assert stats.chi2.sf(((counts - n / 2000) ** 2).sum() / (n / 2000), 1999) > FALSE_ALARM
    for k, count in zip((3, 4), tails, strict=True):
        assert stats.binomtest(count, n, 2 * stats.norm.sf(k)).pvalue > FALSE_ALARM
    # A discrete Gaussian this wide is uniform modulo 256 to within e^(−2π²(s/256)²).
    low = np.bincount(drawn & 255, minlength=256)
    assert stats.chisquare(low).pvalue > FALSE_ALARM
    pairs = stats.norm.cdf(drawn / std)
    assert abs(np.corrcoef(pairs[:-1], pairs[1:])[0, 1]) * np.sqrt(n) < stats.norm.isf(FALSE_ALARM / 2)


def test_three_percent_too_little_noise_fails_the_same_statistic() -> None:
    n, std = 400_000, 2.0**20
    drawn = sampler(std / 1.03).sample(n, SeededSource(8, allow_insecure=True))
    edges = stats.norm.ppf(np.linspace(0, 1, 2001)[1:-1])
    counts = np.bincount(np.searchsorted(edges, drawn / std), minlength=2000)
    assert stats.chi2.sf(((counts - n / 2000) ** 2).sum() / (n / 2000), 1999) < 1e-9


def test_close_comparisons_are_decided_in_decimals_as_mpmath_would() -> None:
    law = DiscreteGaussian(5.0)
    source = SecureSource()
    with mpmath.workdps(60):
        for x, cell in [(0, int(np.searchsorted(law.starts, 0))), (7, int(np.searchsorted(law.starts, 7)))]:
            density = mpmath.exp(-(mpmath.mpf(x) ** 2) / 50) / mpmath.mpf(str(normaliser(5.0)))
            ratio = (density - mpmath.mpf(float(law.floor[cell]))) / mpmath.mpf(float(law.bound[cell]))
            below = float(ratio) - 2.0**-50
            assert law._decide(x, cell, below, source)
            assert not law._decide(x, cell, below + 2.0**-48, source)


@pytest.mark.parametrize("std", [0.1, 1.0, 3.99, 4.0, 11.0])
def test_normaliser_matches_the_theta_function(std: float) -> None:
    with mpmath.workdps(70):
        expected = mpmath.jtheta(3, 0, mpmath.exp(-1 / (2 * mpmath.mpf(std) ** 2)))
        assert abs(mpmath.mpf(str(normaliser(std))) / expected - 1) < mpmath.mpf(10) ** -60


def test_the_cut_tails_are_negligible_and_said() -> None:
    for std in (0.01, 1.0, 1e3, 2.0**40):
        law = DiscreteGaussian(std)
        assert 0.0 <= law.sampling_error < 1e-48
        reach = -int(law.starts[0])
        true = 2 * mpmath.nsum(lambda k, s=std: mpmath.exp(-(k**2) / (2 * mpmath.mpf(s) ** 2)), [reach, reach + 50])
        assert std > 10 or float(true) / float(normaliser(std)) <= law.sampling_error * 1.001


@pytest.mark.parametrize("std", [0.0, -1.0, float("nan"), float("inf"), 2.0**41])
def test_bad_deviations_are_refused(std: float) -> None:
    with pytest.raises(ValueError, match="std"):
        DiscreteGaussian(std)


def test_pieces_join_without_repeating_any_noise() -> None:
    drawn = sampler(1e6).sample(200_001, SecureSource())
    assert drawn.dtype == np.int64
    assert drawn.shape == (200_001,)
    # Of 200,001 draws over some 4 million likely values about 6,000 repeat another; a repeated piece would add 32,768.
    assert len(np.unique(drawn)) > 180_000
    assert sampler(1e6).sample(0, SecureSource()).shape == (0,)
