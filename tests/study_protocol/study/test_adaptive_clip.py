"""An adaptive clip norm: its bits cost what the settings say, and its moves are public and bounded."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.pld import PLDAccountant
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from numpy.typing import NDArray
from pydantic import ValidationError
from scipy import stats

from study_protocol.study.adaptive_clip import (
    CLIP_BITS,
    MAX_EXTRA_NOISE,
    MIN_ROUND_BATCH,
    AdaptiveClip,
    ClipBits,
    extra_noise,
)
from study_protocol.study.settings import StudySettings
from tests.factories.settings import settings, settings_json

ADAPTIVE = {"quantile": 0.5, "rate": 0.2}
# Batches that are large enough beside the noise: of 4 hospitals with 1, and of 5 with 0.5 under masks.
SOUND: dict[str, Any] = {"adaptive_clip": ADAPTIVE, "noise_multiplier": 0.5}
norms = st.floats(1e-6, 1e6)


def bits_of(norm: float, noise: float, batch: float, hospitals: float) -> ClipBits:
    return ClipBits.of(norm, noise_multiplier=noise, expected_batch_size=batch, expected_clients=hospitals)


@examples(max_examples=300, deadline=None, derandomize=True)
@given(norm=norms, noise=st.floats(0.01, 50), batch=st.floats(1, 1e6), hospitals=st.floats(1, 1e3))
def test_gradient_and_bit_together_keep_the_noise_of_the_settings(
    norm: float, noise: float, batch: float, hospitals: float
) -> None:
    """Andrew et al. 2021, section 3: 1/σ² = 1/σ_g² + 1/(2 σ_b)², with σ_b on bits of ±1/2, computed with 50 digits."""
    factor = extra_noise(noise, batch, hospitals)
    if not factor <= MAX_EXTRA_NOISE:
        return
    bits = bits_of(norm, noise, batch, hospitals)
    with mpmath.workdps(50):
        std = mpmath.mpf(noise) * bits.joint_norm
        of_gradients, of_bits = std / mpmath.mpf(norm), std / (2 * mpmath.mpf(bits.half))
        lost = 1 / of_gradients**2 + 1 / (2 * of_bits) ** 2
        stated = 1 / mpmath.mpf(noise) ** 2
        assert stated * (1 - mpmath.mpf(2) ** -46) <= lost <= stated
        # And the noise on the bits of all hospitals is 1/20 of the batch of the round.
        assert of_bits * mpmath.sqrt(hospitals) == pytest.approx(batch * hospitals / 20, rel=1e-6)
        assert of_gradients == pytest.approx(noise * factor, rel=1e-6)


@pytest.mark.quick("0.7-1.0-40.0")
@pytest.mark.parametrize(("noise", "rate", "batch"), [(1.0, 0.1, 60.0), (2.0, 0.5, 120.0), (0.7, 1.0, 40.0)])
def test_one_sampled_step_with_bits_is_dominated_by_the_step_of_the_settings(
    noise: float, rate: float, batch: float
) -> None:
    """δ(ε) of a gradient that moves by the whole norm and of a bit, on a grid of two dimensions, in both directions."""
    bits = bits_of(1.0, noise, batch, 1.0)
    std, edge = noise * bits.joint_norm, np.linspace(-12, 13, 1601)
    gradient: NDArray[np.float64] = stats.norm.pdf(edge * std, scale=std)[:, None]
    moved = stats.norm.pdf(edge * std - 1.0, scale=std)[:, None]
    bit, flipped = stats.norm.pdf(edge * std, scale=std), stats.norm.pdf(edge * std - bits.half, scale=std)
    without = gradient * bit
    present = (1 - rate) * without + rate * moved * flipped
    cell = (std * float(edge[1] - edge[0])) ** 2
    # The pair that the settings state: one number, noise `noise`, sensitivity 1.
    wide = np.linspace(-12 * noise, 12 * noise + 1, 200_001)
    base = stats.norm.pdf(wide, scale=noise)
    mixed = (1 - rate) * base + rate * stats.norm.pdf(wide, loc=1.0, scale=noise)
    accountant = PLDAccountant()
    accountant.compose(PoissonSampledDpEvent(rate, GaussianDpEvent(noise)))
    for epsilon in (0.0, 0.2, 0.5, 1.0):
        grown = math.exp(epsilon)
        both = [
            (np.maximum(present - grown * without, 0).sum() * cell, np.maximum(mixed - grown * base, 0)),
            (np.maximum(without - grown * present, 0).sum() * cell, np.maximum(base - grown * mixed, 0)),
        ]
        for joint, of_pair in both:
            assert joint == pytest.approx(float(of_pair.sum()) * float(wide[1] - wide[0]), abs=2e-6)
        assert max(joint for joint, _ in both) <= accountant.get_delta(epsilon) + 2e-6


@examples(max_examples=200, deadline=None, derandomize=True)
@given(norm=norms, batch=st.integers(30, 5000), records=st.integers(0, 20_000), share=st.floats(0, 1))
def test_one_more_patient_moves_the_sum_of_bits_by_at_most_one_bit(
    norm: float, batch: int, records: int, share: float
) -> None:
    bits, below = bits_of(norm, 0.5, float(batch), 1.0), int(share * records)
    before = Fraction(bits.total(below, records))
    for after in (bits.total(below, records + 1), bits.total(below + 1, records + 1)):
        assert abs(Fraction(after) - before) <= Fraction(bits.half)
    assert abs(before) <= bits.max_sum


def test_the_share_is_read_off_the_sum_of_all_hospitals() -> None:
    bits = bits_of(2.0, 0.5, 100.0, 3.0)
    # Of 100, 90 and 110 drawn patients 40, 50 and 60 were not cut off.
    total = sum(bits.total(*counts) for counts in ((40, 100), (50, 90), (60, 110))) / 100.0
    assert bits.share(total, 3.0) == pytest.approx(150 / 300)
    assert bits.share(0.0, 3.0) == 0.5


def test_the_norm_moves_towards_the_quantile_within_its_bounds() -> None:
    adaptive = AdaptiveClip(quantile=0.6, rate=0.5, min=0.5, max=3.0)
    assert adaptive.next_norm(1.0, 0.6, 1.0) == 1.0
    assert adaptive.next_norm(1.0, 1.0, 1.0) == math.exp(-0.5 * 0.4)
    assert adaptive.next_norm(1.0, 0.0, 1.0) == math.exp(0.5 * 0.6)
    # Noise may carry a share beyond 0 and 1.
    assert adaptive.next_norm(1.0, 7.0, 1.0) == adaptive.next_norm(1.0, 1.0, 1.0)
    assert adaptive.next_norm(1.0, -7.0, 1.0) == adaptive.next_norm(1.0, 0.0, 1.0)
    assert adaptive.next_norm(0.55, 1.0, 1.0) == 0.5
    assert adaptive.next_norm(2.9, 0.0, 1.0) == 3.0
    assert AdaptiveClip(quantile=0.5, rate=0.2).bounds(2.0) == (0.02, 200.0)
    assert AdaptiveClip(quantile=0.5, rate=0.2).bounds(1e-5) == (1e-6, 1e-3)


@examples(max_examples=200, deadline=None, derandomize=True)
@given(quantile=st.floats(0.01, 0.99), rate=st.floats(0.01, 1), share=st.floats(-3, 3), norm=st.floats(0.02, 200))
def test_every_norm_that_follows_passes_the_check_of_hospitals(
    quantile: float, rate: float, share: float, norm: float
) -> None:
    adaptive = AdaptiveClip(quantile=quantile, rate=rate)
    after = adaptive.next_norm(norm, share, 2.0)
    assert adaptive.fault(after, norm, 2.0) is None
    # Another machine's exponential may differ in its last digits.
    for other in (math.nextafter(after, 0.0), math.nextafter(after, math.inf)):
        assert adaptive.fault(min(max(other, 0.02), 200.0), norm, 2.0) is None


@pytest.mark.parametrize(
    ("norm", "before", "reason"),
    [
        (None, 1.0, "names no clip norm"),
        (2.0, None, "begins with clip norm 1, not 2"),
        (0.4, 0.5, "not between 0.5 and 3"),
        (3.5, 3.0, "not between 0.5 and 3"),
        (1.4, 1.0, "more than a factor of 1.35 from 1"),
        (0.7, 1.0, "more than a factor of 1.35 from 1"),
    ],
)
def test_norms_that_cannot_follow_are_named(norm: float | None, before: float | None, reason: str) -> None:
    adaptive = AdaptiveClip(quantile=0.6, rate=0.5, min=0.5, max=3.0)
    assert reason in (adaptive.fault(norm, before, 1.0) or "")


@pytest.mark.parametrize("scheme", ["parallel", "sequential"])
def test_settings_with_an_adaptive_norm_come_back_with_the_same_digest(scheme: str) -> None:
    chosen = settings(scheme, **SOUND)
    assert StudySettings.model_validate(chosen.as_json()).digest() == chosen.digest()
    assert chosen.as_json()["privacy"]["adaptive_clip"] == ADAPTIVE


def test_settings_without_one_are_written_as_before() -> None:
    assert "adaptive_clip" not in settings().as_json()["privacy"]
    assert settings(adaptive_clip=None).digest() == settings().digest()


@pytest.mark.parametrize(
    ("scheme", "options", "reason"),
    [
        ("client", {}, "schemes parallel and sequential"),
        ("client-distributed", {}, "schemes parallel and sequential"),
        ("joint", {}, "schemes parallel and sequential"),
        ("parallel", {"bayesian": True}, "Bayesian costs are measured against a constant"),
        (
            "parallel",
            {"training": {"algorithm": "fedavg", "local_steps": 2}},
            "adaptive_clip needs training.algorithm",
        ),
        (
            "parallel",
            {"training": {"clipping": "per-layer"}},
            "training.clipping_centre zero",
        ),
        (
            "parallel",
            {"training": {"clipping_centre": "previous-update"}},
            "training.clipping_centre zero",
        ),
        ("parallel", {"noise_multiplier": 4.0}, "would need more than any noise|more noise on the gradients"),
        ("parallel", {"noise_multiplier": 0.8}, "2.06 % more noise on the gradients, and at most 2 %"),
        ("parallel", {"noise_multiplier": 1e300}, "would need more than any noise|more noise on the gradients"),
        ("parallel", {"expected_batch_size": 1e45}, "at clip norm 0.01 a bit is no number of float32"),
        ("parallel", {"expected_batch_size": 1e300}, "at clip norm 0.01 a bit is no number of float32"),
        ("parallel", {"adaptive_clip": ADAPTIVE | {"max": 1e39}}, r"at clip norm 1e\+39 a bit is no number of float32"),
        ("parallel", {"adaptive_clip": ADAPTIVE | {"min": 2.0}}, "min 2 must be at most clip_norm 1"),
        ("parallel", {"adaptive_clip": ADAPTIVE | {"max": 0.5}}, "max 0.5 must be at least clip_norm 1"),
        ("parallel", {"adaptive_clip": ADAPTIVE | {"quantile": 1.0}}, "less than 1"),
        ("parallel", {"adaptive_clip": ADAPTIVE | {"rate": 0.0}}, "greater than 0"),
    ],
)
def test_settings_that_the_bits_do_not_fit_are_refused(scheme: str, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        StudySettings.model_validate(settings_json(scheme, **SOUND | options))


def test_more_batch_is_asked_for_than_the_least_that_suffices() -> None:
    """The refusal names expected_batch_size × √expected_clients, and settings with that much are accepted."""
    with pytest.raises(ValidationError, match=r"at least 153"):
        settings(adaptive_clip=ADAPTIVE, noise_multiplier=3.0)
    assert settings(adaptive_clip=ADAPTIVE, noise_multiplier=3.0, expected_batch_size=153 / 2).privacy.clip_bits
    assert MAX_EXTRA_NOISE - 2e-5 < extra_noise(3.0, MIN_ROUND_BATCH * 3 / 2, 4.0) <= MAX_EXTRA_NOISE


def test_a_round_follows_its_norm_and_its_radius_and_keeps_the_rest() -> None:
    chosen = settings(**SOUND, robustness={"sum_radius": 5.0})
    of_round = chosen.at_clip_norm(4.0)
    assert (of_round.privacy.clip_norm, of_round.sum_radius) == (4.0, 20.0)
    assert of_round.at_clip_norm(1.0) == chosen
    assert chosen.at_clip_norm(None) is chosen
    # One patient alone may reach the norm, whatever rounding does to the ratio.
    narrow = settings(**SOUND, robustness={"sum_radius": 1.0})
    for norm in (0.1, 1 / 3, 7.7):
        radius = narrow.at_clip_norm(norm).sum_radius
        assert radius is not None
        assert radius >= norm
    free = settings(**SOUND)
    assert free.sum_radius is not None
    assert free.at_clip_norm(3.0).sum_radius == pytest.approx(3 * free.sum_radius)


def test_what_is_sent_has_one_number_more() -> None:
    model = {"weight": ((2, 3), "float32")}
    assert settings().privacy.sent(model) is model
    assert settings(**SOUND).privacy.sent(model) == model | {CLIP_BITS: ((1,), "float32")}
    with pytest.raises(ValueError, match="give it another name"):
        settings(**SOUND).privacy.sent({CLIP_BITS: ((1,), "float32")})


@pytest.mark.parametrize("scheme", ["parallel", "joint", "client"])
def test_no_round_of_a_constant_norm_has_another_one(scheme: str) -> None:
    chosen = settings(scheme)
    assert chosen.at_clip_norm(chosen.privacy.clip_norm) is chosen
    for norm in (0.001, 3.0):
        with pytest.raises(ValueError, match="the study's is constant"):
            chosen.at_clip_norm(norm)
