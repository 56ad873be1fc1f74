from __future__ import annotations

import math

import numpy as np
import pytest

from client_sdk.protocol.wire.tensors import TERMS, UPDATE, Array, spec_of
from server.domain.admission import Findings, body_spec, coordinates, examine
from server.domain.errors import Rejected
from tests.factories.hospital_double import MODEL
from tests.factories.settings import ORDERS, settings

SPEC = spec_of(MODEL)


def body(value: float, **log_moments: list[float]) -> list[tuple[str, Array]]:
    tensors: dict[str, Array] = {UPDATE + name: np.full_like(array, value) for name, array in MODEL.items()}
    return [*tensors.items(), *((TERMS + name, np.array(values)) for name, values in log_moments.items())]


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
