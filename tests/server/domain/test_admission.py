from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from server.domain.admission import Findings, body_spec, central_noise, coordinates, examine
from server.domain.errors import Rejected
from study_protocol.wire.tensor_files import Arrays
from study_protocol.wire.tensors import TERMS, UPDATE, Array, spec_of
from tests.factories.hospital_double import MODEL
from tests.factories.settings import ORDERS, settings

SPEC = spec_of(MODEL)


def body(value: float, **log_moments: list[float]) -> Arrays:
    tensors: dict[str, Array] = {UPDATE + name: np.full_like(array, value) for name, array in MODEL.items()}
    return Arrays(tensors | {TERMS + name: np.array(values) for name, values in log_moments.items()})


def test_a_body_holds_the_update_and_terms_only_where_they_are_asked_for() -> None:
    names = {"update/bias", "update/weight"}
    assert set(body_spec(settings(), SPEC)) == names
    assert set(body_spec(settings(scheme="client", bayesian=True), SPEC)) == names
    with_log_moments = body_spec(settings(bayesian=True), SPEC)
    assert set(with_log_moments) == names | {"log-moments/filter", "log-moments/moments"}
    assert with_log_moments["log-moments/moments"] == ((len(ORDERS),), "float64")
    assert coordinates(SPEC) == 8


def test_the_norm_is_recomputed_from_the_bytes() -> None:
    chosen = settings(scheme="client")
    # Eight coordinates of 0.3: norm 0.8485…
    distance = examine(chosen, SPEC, body(0.3), math.inf).distance
    assert distance is not None
    assert np.sqrt(8) * np.float32(0.3) <= distance <= np.sqrt(8) * 0.3 + 2e-5
    with pytest.raises(Rejected, match="clip-exceeded"):
        examine(chosen, SPEC, body(0.4), math.inf)


@pytest.mark.parametrize("size", [4096, 1 << 18, 1 << 20, (1 << 20) + 5])
def test_the_norm_is_never_below_the_exact_one(size: int) -> None:
    """Beside a one, squares of 2⁻⁵⁴ are lost one by one, whatever the order that the sum takes."""
    values = np.full(size, 2.0**-27, np.float32)
    values[0] = 1
    chosen, model = settings(scheme="client", clip_norm=2.0), {"weight": ((size,), "float32")}
    found = examine(chosen, model, Arrays({UPDATE + "weight": values}), math.inf).distance
    exact = Fraction(1) + (size - 1) * Fraction(2) ** -54
    noise = central_noise(chosen.privacy, size)
    assert noise is not None
    # The distance d with d / (noise_multiplier · clip_norm) = (norm + rounding) / std, exactly.
    norm = Fraction(found or 0.0) * Fraction(noise.sensitivity) / 2 - Fraction(noise.rounding)
    assert norm > 1
    assert norm**2 >= exact
    assert norm**2 <= exact * (1 + Fraction(1, 10**9))


def test_a_hospital_that_adds_its_own_noise_is_not_measured() -> None:
    assert examine(settings(), SPEC, body(100.0), math.inf).distance is None


def test_terms_are_taken_as_they_are() -> None:
    found = examine(settings(bayesian=True), SPEC, body(0.1, filter=[0.5], moments=[0.1, 0.2, 0.3, 0.4]), math.inf)
    assert found.log_moments is not None
    assert found.log_moments.filter == 0.5
    assert found.log_moments.moments == (0.1, 0.2, 0.3, 0.4)


def test_an_update_longer_than_its_noise_makes_it_is_refused() -> None:
    """Eight coordinates of 1.0 have norm √8; NaN is longer than anything."""
    assert examine(settings(), SPEC, body(1.0), 2.83) == Findings(None, None)
    for value, longest in ((1.0, 2.82), (1e30, 1e20), (math.nan, math.inf)):
        with pytest.raises(Rejected, match="norm-exceeded"):
            examine(settings(), SPEC, body(value), longest)
    # Where whole updates are clipped the clip norm has the word.
    assert examine(settings(scheme="client"), SPEC, body(0.1), 0.0).distance is not None


@pytest.mark.parametrize(("filter", "moments"), [([-0.5], [0.1] * 4), ([0.5], [0.1, -0.1, 0.1, 0.1])])
def test_terms_below_zero_are_no_costs(filter: list[float], moments: list[float]) -> None:
    with pytest.raises(Rejected, match="invalid-request"):
        examine(settings(bayesian=True), SPEC, body(0.1, filter=filter, moments=moments), math.inf)
