"""The bits of an adaptive clip norm: exact, one for each drawn record, noised and charged with its gradient."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import nn

from private_learning import tasks
from private_learning.gradients import ClippedSum, PerRecordGradients
from private_learning.gradients.slots import Slots
from private_learning.training import LocalTraining, weights_of
from private_learning.training.clip_bits import with_bits
from private_learning.training.gradients import noise_of_a_step, projected
from private_learning.training.noise import GridNoise
from study_protocol.randomness.source import SeededRandomness, SeededSource
from study_protocol.study.adaptive_clip import CLIP_BITS, ClipBits
from study_protocol.study.privacy import Privacy
from study_protocol.study.settings import StudySettings
from tests.factories.hospitals import records
from tests.factories.settings import TASK_PARAMETERS, settings

CLASSES, FEATURES = 3, 4
TASK = tasks.load("logistic-regression", TASK_PARAMETERS)


def adaptive(**options: Any) -> StudySettings:
    return settings("parallel", adaptive_clip={"quantile": 0.5, "rate": 0.2}, **({"noise_multiplier": 0.3} | options))


def bits_of(chosen: StudySettings) -> ClipBits:
    bits = chosen.privacy.clip_bits
    assert bits is not None
    return bits


def test_every_record_that_was_drawn_has_one_bit() -> None:
    norms = torch.tensor([0.2, 1.0, 1.1, math.inf, math.nan], dtype=torch.float64)
    bits = bits_of(adaptive())
    part = with_bits(ClippedSum({"w": torch.zeros(2)}, norms, 1.0, 0.25), bits)
    # Two are no longer than the norm; records without a gradient count as longer.
    assert part.gradients[CLIP_BITS].tolist() == [-bits.half]
    assert (part.clip_norm, part.rounding) == (bits.joint_norm, 0.25)
    empty = with_bits(ClippedSum({"w": torch.zeros(2)}, norms[:0], 1.0), bits)
    assert empty.gradients[CLIP_BITS].tolist() == [0.0], "who is not drawn adds nothing"


class Silent:
    """A law of noise that is always 0, on the same grid."""

    def __init__(self, like: Any) -> None:
        self.dtype, self.std, self.sampling_error = like.dtype, like.std, 0.0

    def chunks(self, size: int, source: object) -> Iterator[tuple[int, NDArray[np.int64]]]:
        yield 0, np.zeros(size, self.dtype)


def distance(first: NDArray[Any], second: NDArray[Any]) -> Any:
    """‖first − second‖, differences exact, with 60 digits."""
    with mpmath.workdps(60):
        squares = [(Fraction(float(a)) - Fraction(float(b))) ** 2 for a, b in zip(first, second, strict=True)]
        total = sum(squares, Fraction(0))
        return mpmath.sqrt(mpmath.mpf(total.numerator) / total.denominator)


@pytest.mark.slow
@examples(max_examples=40, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(1, 12),
    scale=st.floats(1e-2, 1e2),
    norm=st.sampled_from([0.03, 1.0, 40.0]),
    radius=st.sampled_from([None, 1.0, 2.5]),
)
def test_one_record_moves_gradients_and_bits_by_no_more_than_the_sensitivity(
    seed: int, count: int, scale: float, norm: float, radius: float | None
) -> None:
    """Every record is left out in turn; the functions are those of the step, without its noise."""
    torch.manual_seed(seed)
    chosen = adaptive(robustness={"sum_radius": radius}).at_clip_norm(norm)
    bits, expected = bits_of(chosen), chosen.sum_radius
    assert expected is not None
    loss = nn.CrossEntropyLoss(reduction="none")
    gradients = PerRecordGradients(nn.Linear(FEATURES, CLASSES), loss, micro_batch=64)
    noise = noise_of_a_step(gradients, chosen)
    assert noise.law.std * noise.spacing >= 0.3 * noise.sensitivity
    noise = dataclasses.replace(noise, law=Silent(noise.law))  # type: ignore[arg-type]
    draw = np.random.default_rng(seed)
    inputs = draw.normal(0.0, scale, (count, FEATURES)).astype(np.float32)
    targets = draw.integers(0, CLASSES, count)

    def vector(rows: NDArray[np.int64]) -> NDArray[np.float64]:
        part = gradients.clipped_sum(
            torch.as_tensor(inputs[rows]), torch.as_tensor(targets[rows]), clip_norm=norm, slots=Slots(29)
        )
        whole = with_bits(projected(part, expected)[0], bits)
        noised = noise.added_to(whole, SeededSource(1, allow_insecure=True)).gradients
        return np.concatenate([value.double().numpy().ravel() for value in noised.values()])

    everybody = vector(np.arange(count))
    for left_out in range(count):
        assert distance(everybody, vector(np.delete(np.arange(count), left_out))) <= noise.sensitivity


def test_the_share_of_short_gradients_is_the_one_that_autograd_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    """At rate 1 and without the noise, record by record."""

    def silent(*given: Any) -> GridNoise:
        noise = noise_of_a_step(*given)
        return dataclasses.replace(noise, law=Silent(noise.law))  # type: ignore[arg-type]

    monkeypatch.setattr("private_learning.training.gradients.noise_of_a_step", silent)
    chosen = adaptive(noise_multiplier=1e-4, sampling_rate=1.0, expected_batch_size=60.0, expected_clients=1.0)
    data, weights = TASK.dataset(records(60)), weights_of(TASK.model())
    local = LocalTraining(TASK, data, chosen, SeededRandomness(1, allow_insecure=True))
    model = TASK.model()
    lengths = []
    for x, y in zip(data.inputs[: len(data)], data.targets, strict=True):
        grads = torch.autograd.grad(TASK.loss(model(x[None]), y[None]).sum(), list(model.parameters()))
        lengths.append(math.sqrt(sum(float(g.double().square().sum()) for g in grads)))
    for norm in (0.3, float(np.median(lengths)), 3.0):
        update = local.contribution(weights, None, clip_norm=norm).update
        share = bits_of(chosen.at_clip_norm(norm)).share(float(update[CLIP_BITS][0]), 1.0)
        assert share == pytest.approx(float(np.mean(np.array(lengths) <= norm)), abs=1e-5)


class Charged:
    """A patients' account that writes down what it is asked."""

    needs_every_norm = False
    charges_only_drawn = False

    def __init__(self) -> None:
        self.norms: NDArray[np.float64] = np.empty(0)
        self.stated: list[float] = []
        self.rounding = math.nan

    def admitted(self, rows: NDArray[np.int64], privacy: Privacy) -> NDArray[np.int64]:
        self.stated.append(privacy.clip_norm)
        return rows

    def charge(self, rows: NDArray[np.int64], norms: NDArray[np.float64], privacy: Privacy, *, rounding: float) -> None:
        self.norms, self.rounding = norms, rounding
        self.stated.append(privacy.clip_norm)

    def to_bytes(self) -> bytes:
        return b""

    def resume(self, saved: bytes) -> None:
        raise NotImplementedError


def test_a_patients_own_account_pays_for_gradient_and_bit() -> None:
    chosen, account = adaptive(sampling_rate=1.0), Charged()
    data, weights = TASK.dataset(records(60)), weights_of(TASK.model())
    local = LocalTraining(TASK, data, chosen, SeededRandomness(1, allow_insecure=True))
    local.contribution(weights, None, clip_norm=2.0, individual=account)
    bits = bits_of(chosen.at_clip_norm(2.0))
    # On the scale of the whole vector, where the noise is noise_multiplier times the joint norm.
    assert account.stated == [bits.joint_norm, bits.joint_norm]
    assert account.norms.min() >= bits.half, "also a gradient of zero moves the bit"
    bare = settings(noise_multiplier=0.3, sampling_rate=1.0, clip_norm=2.0)
    plain = Charged()
    LocalTraining(TASK, data, bare, SeededRandomness(1, allow_insecure=True)).contribution(
        weights, None, individual=plain
    )
    assert account.norms == pytest.approx(np.hypot(plain.norms, bits.half), rel=1e-12)
    assert 0 < account.rounding < 2.0**-6 * 2.0
