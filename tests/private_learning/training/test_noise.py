"""The noise that is added is the noise that is accounted."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from private_learning.gradients import ClippedSum, NonFiniteError
from private_learning.training.noise import SecureSource, SeededSource, add_float_noise, add_noise, normal

# Each goodness-of-fit test is fixed by its seed; with another seed it would raise a false alarm with this probability.
FALSE_ALARM = 1e-3


def clipped(*tensors: torch.Tensor, clip_norm: float = 1.0) -> ClippedSum:
    return ClippedSum({f"p{k}": value for k, value in enumerate(tensors)}, torch.zeros(0), clip_norm)


@pytest.mark.parametrize(("multiplier", "clip_norm", "seed"), [(1.0, 1.0, 1), (0.3, 5.0, 2), (40.0, 1e-3, 3)])
def test_noise_has_the_stated_deviation_and_shape(multiplier: float, clip_norm: float, seed: int) -> None:
    values = torch.linspace(-3, 3, 300_000) * clip_norm
    done = add_noise(
        clipped(values, clip_norm=clip_norm),
        noise_multiplier=multiplier,
        source=SeededSource(seed, allow_insecure=True),
    )
    noise = (done.gradients["p0"].double() - values.double()).numpy() / done.noise_std
    variance = float((noise**2).sum())
    assert FALSE_ALARM / 2 < stats.chi2.cdf(variance, len(noise)) < 1 - FALSE_ALARM / 2
    assert stats.kstest(noise, "norm").pvalue > FALSE_ALARM


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    clip_norm=st.floats(1e-6, 1e6),
    multiplier=st.floats(1e-2, 1e3),
    coordinates=st.integers(1, 300),
    exponent=st.none() | st.integers(-12, 3),
)
def test_the_accounted_ratio_is_never_above_the_real_one(
    clip_norm: float, multiplier: float, coordinates: int, exponent: int | None
) -> None:
    spacing = None if exponent is None else 2.0 ** (math.floor(math.log2(clip_norm)) + exponent)
    done = add_noise(
        clipped(torch.zeros(coordinates), clip_norm=clip_norm),
        noise_multiplier=multiplier,
        source=SecureSource(),
        resolution=spacing,
    )
    # One more record moves the sum by at most clip_norm, then each coordinate by one spacing more in rounding.
    moved = clip_norm + done.resolution * math.sqrt(coordinates)
    assert done.sensitivity >= moved
    assert done.noise_std >= multiplier * moved
    assert done.noise_std <= multiplier * moved * (1 + 1e-12)
    assert math.frexp(done.resolution)[0] == 0.5
    assert 0.0 <= done.sampling_error < 1e-40


def test_results_lie_on_the_grid() -> None:
    values = torch.rand(1000, dtype=torch.float64)
    done = add_noise(clipped(values), noise_multiplier=1.0, source=SecureSource(), resolution=2.0**-10)
    units = done.gradients["p0"] * 2.0**10
    assert torch.equal(units, units.round())
    assert done.gradients["p0"].dtype == torch.float64


def test_default_grid_costs_next_to_nothing() -> None:
    done = add_noise(clipped(torch.zeros(1_000_000)), noise_multiplier=1.0, source=SecureSource())
    assert done.sensitivity < 1.0005


def test_rounding_moves_neighbours_by_at_most_one_spacing_per_coordinate() -> None:
    """The same seed draws the same noise, so the difference of two results is the difference of the rounded sums."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        one = torch.randn(64, generator=generator, dtype=torch.float64)
        step = torch.randn(64, generator=generator, dtype=torch.float64)
        other = one + step / step.norm()
        results = [
            add_noise(
                clipped(value), noise_multiplier=1.0, source=SeededSource(4, allow_insecure=True), resolution=2.0**-4
            )
            for value in (one, other)
        ]
        moved = float((results[0].gradients["p0"] - results[1].gradients["p0"]).norm())
        assert moved <= results[0].sensitivity


def test_every_coordinate_of_every_tensor_gets_its_own_noise() -> None:
    shapes = [(3,), (), (40, 1000), (7, 2, 2), (0,), (50_000,)]
    done = add_noise(clipped(*(torch.zeros(s) for s in shapes)), noise_multiplier=1.0, source=SecureSource())
    assert [tuple(value.shape) for value in done.gradients.values()] == shapes
    flat = torch.cat([value.flatten() for value in done.gradients.values()])
    assert len(flat.unique()) > 0.97 * len(flat)


def test_an_empty_batch_is_noised_like_any_other() -> None:
    done = add_noise(clipped(torch.zeros(10_000)), noise_multiplier=2.0, source=SeededSource(5, allow_insecure=True))
    variance = float((done.gradients["p0"].double() / done.noise_std).square().sum())
    assert FALSE_ALARM / 2 < stats.chi2.cdf(variance, 10_000) < 1 - FALSE_ALARM / 2


def test_half_precision_parameters_keep_their_type() -> None:
    done = add_noise(clipped(torch.zeros(5, dtype=torch.bfloat16)), noise_multiplier=1.0, source=SecureSource())
    assert done.gradients["p0"].dtype == torch.bfloat16


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf"), -0.0])
def test_bad_numbers_are_named(bad: float) -> None:
    with pytest.raises(ValueError, match="noise_multiplier"):
        add_noise(clipped(torch.zeros(2)), noise_multiplier=bad, source=SecureSource())
    with pytest.raises(ValueError, match="resolution"):
        add_noise(clipped(torch.zeros(2)), noise_multiplier=1.0, source=SecureSource(), resolution=bad)


def test_values_off_the_grid_are_refused() -> None:
    with pytest.raises(ValueError, match="power of two"):
        add_noise(clipped(torch.zeros(2)), noise_multiplier=1.0, source=SecureSource(), resolution=0.1)
    with pytest.raises(NonFiniteError, match="p1"):
        add_noise(clipped(torch.zeros(2), torch.tensor([1.0, math.nan])), noise_multiplier=1.0, source=SecureSource())
    with pytest.raises(OverflowError, match="resolution"):
        add_noise(clipped(torch.tensor([1e30])), noise_multiplier=1.0, source=SecureSource())
    with pytest.raises(OverflowError, match="resolution"):
        add_noise(clipped(torch.tensor([3e38])), noise_multiplier=1e-3, source=SecureSource())


def test_large_sums_keep_every_unit() -> None:
    """Beyond 2^30 units the sum no longer fits 32-bit integers; it must not wrap."""
    value = 3000.0
    done = add_noise(clipped(torch.full((5,), value, dtype=torch.float64)), noise_multiplier=1.0, source=SecureSource())
    assert (done.gradients["p0"] - value).abs().max() < 12
    single = add_noise(clipped(torch.full((5,), value)), noise_multiplier=1.0, source=SecureSource())
    assert (single.gradients["p0"] - value).abs().max() < 12


# --- the fallback has the right law and names itself a mitigation ---------------------------------------------------


def test_samples_are_standard_normal() -> None:
    drawn = normal(200_000, SeededSource(1, allow_insecure=True), torch.device("cpu")).numpy()
    assert stats.kstest(drawn, "norm").pvalue > FALSE_ALARM
    assert FALSE_ALARM / 2 < stats.chi2.cdf((drawn**2).sum(), len(drawn)) < 1 - FALSE_ALARM / 2


def test_noise_is_scaled_and_says_what_it_is() -> None:
    value = torch.full((100, 500), 7.0)
    clipped = ClippedSum({"w": value, "b": torch.zeros(0, dtype=torch.float64)}, torch.zeros(0), 0.5)
    done = add_float_noise(clipped, noise_multiplier=3.0, source=SeededSource(2, allow_insecure=True))
    noise = ((done.gradients["w"] - value).double() / 1.5).flatten().numpy()
    assert stats.kstest(noise, "norm").pvalue > FALSE_ALARM
    assert (done.noise_std, done.sensitivity, done.resolution, done.sampling_error) == (1.5, 0.5, 0.0, 1.0)
    assert "mitigation" in done.law
    assert {name: v.dtype for name, v in done.gradients.items()} == {"w": torch.float32, "b": torch.float64}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_noise_stays_on_its_device() -> None:
    clipped = ClippedSum({"w": torch.zeros(1000, device="cuda")}, torch.zeros(0), 1.0)
    assert add_float_noise(clipped, noise_multiplier=1.0, source=SecureSource()).gradients["w"].is_cuda


def test_bad_input_is_refused() -> None:
    good, bad = (ClippedSum({"w": torch.tensor([v])}, torch.zeros(0), 1.0) for v in (0.0, math.nan))
    with pytest.raises(ValueError, match="noise_multiplier"):
        add_float_noise(good, noise_multiplier=0.0, source=SecureSource())
    with pytest.raises(NonFiniteError, match="'w'"):
        add_float_noise(bad, noise_multiplier=1.0, source=SecureSource())
