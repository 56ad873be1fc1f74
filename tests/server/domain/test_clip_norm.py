"""The norm of the next round: read off the noised sum of a round, and moved towards the quantile."""

from __future__ import annotations

import numpy as np
import pytest

from server.domain.clip_norm import next_clip_norm
from study_protocol.study.adaptive_clip import CLIP_BITS
from study_protocol.study.settings import StudySettings
from study_protocol.wire.tensor_files import Arrays
from tests.factories.settings import settings


def adaptive(quantile: float = 0.5, **options: float) -> StudySettings:
    return settings("parallel", adaptive_clip={"quantile": quantile, "rate": 0.3}, noise_multiplier=0.5, **options)


def total_of(chosen: StudySettings, norm: float, share: float, noise: float = 0.0) -> Arrays:
    """The sum of the updates of hospitals with whole batches, so many of whose gradients are short."""
    bits, privacy = chosen.at_clip_norm(norm).privacy.clip_bits, chosen.privacy
    assert bits is not None
    sum_of_bits = (share - 0.5) * 2 * bits.half * privacy.expected_clients + noise
    return Arrays({"w": np.zeros(3), CLIP_BITS: np.array([sum_of_bits])})


def test_a_study_with_a_constant_norm_has_no_next_one() -> None:
    assert next_clip_norm(settings(), None, Arrays({"w": np.zeros(3)})) is None


def test_the_norm_moves_by_the_share_of_short_gradients() -> None:
    chosen = adaptive(0.7)
    assert next_clip_norm(chosen, 2.0, total_of(chosen, 2.0, 0.7)) == pytest.approx(2.0)
    assert next_clip_norm(chosen, 2.0, total_of(chosen, 2.0, 0.9)) == pytest.approx(2.0 * np.exp(-0.3 * 0.2))


@pytest.mark.parametrize(("start", "quantile"), [(30.0, 0.5), (0.05, 0.5), (1.0, 0.8)])
def test_rounds_lead_to_the_quantile_of_the_gradients(start: float, quantile: float) -> None:
    """Norms are log-normal around 1, and the noise on the share is 1/20, as the settings have it."""
    draw = np.random.default_rng(3)
    chosen, lengths = adaptive(quantile, clip_norm=start), np.exp(draw.normal(size=4000))
    norm: float | None = start
    for _ in range(120):
        assert norm is not None
        bits = chosen.at_clip_norm(norm).privacy.clip_bits
        assert bits is not None
        noise = 2 * bits.half * chosen.privacy.expected_clients * draw.normal() / 20
        norm = next_clip_norm(chosen, norm, total_of(chosen, norm, float(np.mean(lengths <= norm)), noise))
    assert float(np.mean(lengths <= (norm or 0.0))) == pytest.approx(quantile, abs=0.06)
