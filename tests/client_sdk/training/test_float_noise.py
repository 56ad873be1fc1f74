"""The fallback has the right law and names itself a mitigation."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats

from client_sdk.gradients import ClippedSum, NonFiniteError
from client_sdk.training.float_noise import add_float_noise, normal
from client_sdk.training.noise import SecureSource, SeededSource

# Fixed by its seed; with another seed it would raise a false alarm with this probability.
FALSE_ALARM = 1e-3


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
