"""Which vectors a study sums: the layout both sides compute, and what their sums decode to."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from study_protocol.secure_sum.parameters import flatten, unflatten, vectors_of
from study_protocol.secure_sum.vectors import VectorSpec, decode, encode
from study_protocol.study.central_noise import public_grid
from study_protocol.study.settings import StudySettings
from study_protocol.wire.tensors import spec_of
from tests.factories.hospital_double import MODEL
from tests.factories.settings import settings

SPEC = spec_of(MODEL)


def names(chosen: StudySettings, clients: int = 5) -> list[str]:
    return [spec.name for spec in vectors_of(chosen, SPEC, clients)]


def vector(chosen: StudySettings, name: str, clients: int) -> VectorSpec:
    (found,) = [spec for spec in vectors_of(chosen, SPEC, clients) if spec.name == name]
    return found


def summed(spec: VectorSpec, encoded: list[Any]) -> Any:
    """The ring's sum with canary words of zero, which `decode` does not read."""
    total = np.zeros(spec.words, spec.dtype)
    for words in encoded:
        total[: spec.data_words] += words
    return decode(spec, total)


@pytest.mark.parametrize(
    ("scheme", "options", "expected"),
    [
        ("parallel", {}, ["update"]),
        ("parallel", {"bayesian": True}, ["update", "terms"]),
        ("client", {"bayesian": True}, ["update", "terms"]),
        ("sequential", {}, ["update"]),
        ("sequential", {"bayesian": True}, ["update", "terms", "papers", "metrics"]),
    ],
)
def test_a_scheme_sums_what_its_ledger_needs(scheme: str, options: dict[str, Any], expected: list[str]) -> None:
    assert names(settings(scheme, masked=True, **options)) == expected


def test_without_masking_nothing_is_summed() -> None:
    assert vectors_of(settings(), SPEC, 5) == ()


@pytest.mark.parametrize("scheme", ["parallel", "sequential", "client"])
def test_both_sides_lay_out_the_same_vectors(scheme: str) -> None:
    chosen = settings(scheme, masked=True, bayesian=True)
    again = StudySettings.model_validate_json(json.dumps(chosen.as_json()))
    shuffled = dict(reversed(list(SPEC.items())))
    assert vectors_of(chosen, SPEC, 7) == vectors_of(again, shuffled, 7)
    assert all(spec.fault(7) is None for spec in vectors_of(chosen, SPEC, 7))


@hypothesis.settings(max_examples=60, deadline=None)
@given(data=st.data(), clients=st.integers(3, 12), scheme=st.sampled_from(["parallel", "client"]))
def test_the_sum_of_updates_is_the_exact_sum_of_the_rounded_ones(
    data: st.DataObject, clients: int, scheme: str
) -> None:
    spec = vector(settings(scheme, masked=True), "update", clients)
    reals = st.floats(-0.25, 0.25, width=32)
    rows = [np.array(data.draw(st.lists(reals, min_size=8, max_size=8))) for _ in range(clients)]
    total = summed(spec, [encode(spec, row, bytes) for row in rows])
    for i, value in enumerate(total):
        exact = sum((Fraction(float(row[i])) for row in rows), Fraction(0))
        assert abs(Fraction(float(value)) - exact) <= clients * Fraction(1, 2 ** (spec.scale_bits + 1))


def test_sums_of_papers_costs_and_records_are_never_below() -> None:
    chosen = settings("sequential", masked=True, bayesian=True)
    costs = [np.array([0.1, 1e-9, 0.3, 7.0]) * (k + 1) for k in range(5)]
    reported = summed(vector(chosen, "papers", 5), [encode(vector(chosen, "papers", 5), row, bytes) for row in costs])
    exact = [sum((Fraction(float(row[i])) for row in costs), Fraction(0)) for i in range(4)]
    assert all(0 <= Fraction(float(a)) - b < Fraction(1, 10**6) for a, b in zip(reported, exact, strict=True))
    metrics = vector(chosen, "metrics", 5)
    assert summed(metrics, [encode(metrics, np.array([float(n)]), bytes) for n in (10, 0, 7, 3, 1)])[0] == 21.0


@pytest.mark.parametrize("size", [1, 8, 1000, 1_000_003])
@pytest.mark.parametrize("scale", [0.3, 1.0, 5.0])
def test_the_public_grid_adds_at_most_its_share_to_a_norm(scale: float, size: int) -> None:
    spacing = public_grid(scale, size)
    assert np.frexp(spacing)[0] == 0.5, "a power of two"
    assert spacing * np.sqrt(size) <= scale * 2**-14
    # No finer than that takes, but for the few coordinates for which noise would have too few steps.
    assert scale * 2**-14 < 2 * spacing * np.sqrt(max(size, 16))


def test_updates_that_fit_no_ring_are_refused_by_the_settings_name() -> None:
    with pytest.raises(ValueError, match="clip_norm or noise_multiplier"):
        vectors_of(settings("client", masked=True, clip_norm=1e12), SPEC, 5)


def test_flattening_is_in_order_of_names_and_comes_back() -> None:
    tensors = {"weight": np.arange(6, dtype=np.float32).reshape(3, 2), "bias": np.array([7, 8], np.float32)}
    flat = flatten(tensors, SPEC)
    assert flat.tolist() == [7, 8, 0, 1, 2, 3, 4, 5]
    back = unflatten(flat, SPEC)
    assert all(np.array_equal(back[name], tensors[name]) and back[name].shape == SPEC[name][0] for name in SPEC)
