"""Quantiles without noise are numpy's and scipy's on the pooled patients; with noise everything fits together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import rv_histogram

from study_protocol.queries.answer import NoisedSum
from study_protocol.queries.kinds.quantiles import Quantiles
from study_protocol.queries.tree import MAX_LEAVES
from tests.factories.questions import SEX, answer_without_noise, column, patients, question

SHARES = (0.1, 0.25, 0.5, 0.75, 0.9)
BY_SEX: dict[str, Any] = {"by": {"column": "sex", "categories": ["f", "m"]}}
LEAVES = pytest.mark.parametrize("leaves", [7, 32, 40, 200, 1000])


def asked(leaves: int, low: float = 60, high: float = 220, **entries: Any) -> Any:
    number = {"column": "pressure", "low": low, "high": high}
    return question({"kind": "quantiles", "number": number, "leaves": leaves, "quantiles": SHARES}, **entries)


@LEAVES
def test_without_noise_they_are_numpys_after_the_same_clipping_and_binning(leaves: int) -> None:
    """Of each sex; some patients lie outside the range, some have no number."""
    columns = patients(4000)
    wanted = asked(leaves, 100, 160, **BY_SEX)
    answer = answer_without_noise(wanted, columns)
    for group, sex in enumerate(("f", "m")):
        values = columns["pressure"][columns["sex"] == sex]
        values = values[~np.isnan(values)]
        below = np.array([(values < edge).mean() for edge in wanted.edges])
        expected = np.interp(SHARES, below, wanted.edges)
        rows = slice(group * len(SHARES), (group + 1) * len(SHARES))
        assert column(answer, "quantiles")[rows] == pytest.approx(expected, abs=1e-9)
        shown = column(answer, "distribution").reshape(4, -1)[group]
        assert shown == pytest.approx(below, abs=1e-9)
        clipped = np.quantile(np.clip(values, 100, 160), SHARES, method="inverted_cdf")
        assert np.abs(expected - clipped).max() <= 60 / leaves
        assert column(answer, "patients")[group] == pytest.approx(len(values))


@LEAVES
def test_where_everybody_is_inside_they_are_those_of_scipys_histograms(leaves: int) -> None:
    columns = patients(4000, missing=0.0)
    wanted = asked(leaves, 0, 300)
    answer = answer_without_noise(wanted, columns)
    counts = np.histogram(columns["pressure"], bins=wanted.edges)[0]
    expected = rv_histogram((counts, wanted.edges)).ppf(SHARES)
    assert column(answer, "quantiles") == pytest.approx(expected, abs=1e-9)
    assert column(answer, "histogram")[1:-2] == pytest.approx(counts, abs=1e-9)


def test_a_quantile_beyond_the_range_is_its_end() -> None:
    columns = {"pressure": np.array([10.0] * 60 + [100.0] * 10 + [400.0] * 30)}
    answer = answer_without_noise(asked(40), columns)
    assert column(answer, "quantiles").tolist()[:3] == [60, 60, 60]
    assert column(answer, "quantiles").tolist()[3:] == [220, 220]
    assert column(answer, "histogram")[[0, -2, -1]] == pytest.approx([60, 30, 0])


def test_values_on_an_edge_belong_to_the_bin_that_begins_there() -> None:
    columns = {"pressure": np.array([60.0, 64.0, 220.0, np.nan, np.inf])}
    histogram = column(answer_without_noise(asked(40), columns), "histogram")
    assert histogram[[0, 1, 2, -2, -1]].tolist() == pytest.approx([0, 1, 1, 1, 2])
    labels = [row[0] for row in answer_without_noise(asked(40), columns).tables[2].rows]
    assert labels[:3] == ["below 60", "60 to 64", "64 to 68"]


def test_as_many_leaves_as_are_allowed_have_an_answer() -> None:
    answer = answer_without_noise(asked(MAX_LEAVES), patients(500))
    assert [len(table.rows) for table in answer.tables] == [len(SHARES), MAX_LEAVES + 1, MAX_LEAVES + 3, 1]
    # The end of the range and one leaf; the labels of leaves are those of a table's bins.
    labels = [answer.tables[2].rows[place][0] for place in (0, 1, -2)]
    assert labels == ["below 60", "60 to 60.0390625", "220 and above"]


@settings(max_examples=60, deadline=None)
@given(
    leaves=st.integers(2, 300),
    std=st.sampled_from([0.0, 0.5, 8.0, 300.0]),
    seed=st.integers(0, 2**32 - 1),
    count=st.sampled_from([0, 3, 200]),
)
def test_whatever_the_noise_everything_fits_together(leaves: int, std: float, seed: int, count: int) -> None:
    wanted = asked(leaves)
    spacing = wanted.grid().spacing
    noise = np.random.default_rng(seed).normal(0, std, wanted.cells) if std else 0.0
    answer = wanted.answer(NoisedSum(wanted.total(patients(count), spacing) * spacing + noise, std, 1))
    quantiles, shares, histogram = (column(answer, name) for name in ("quantiles", "distribution", "histogram"))
    assert (histogram >= 0).all()
    for name in ("quantiles", "distribution", "histogram"):
        assert (column(answer, name, "low") <= column(answer, name, "high")).all()
    assert (column(answer, "quantiles", "low") >= 60).all()
    assert (column(answer, "quantiles", "high") <= 220).all()
    if np.isnan(quantiles).any():
        assert np.isnan(quantiles).all()
        assert np.isnan(shares).all()
        return
    assert (np.diff(quantiles) >= 0).all()
    assert (np.diff(shares) >= 0).all()
    assert 0 <= shares[0] <= shares[-1] <= 1
    whole = histogram[:-1].sum()
    assert np.cumsum(histogram[:-2]) / whole == pytest.approx(shares, abs=1e-9)


def test_groups_are_counted_apart() -> None:
    columns = patients(900)
    together = answer_without_noise(asked(40), columns)
    apart = answer_without_noise(asked(40, by=SEX), columns)
    assert column(apart, "histogram").reshape(4, -1).sum(axis=0) == pytest.approx(column(together, "histogram"))
    assert apart.tables[0].columns[:2] == ("sex", "quantile")
    assert together.tables[0].columns[0] == "quantile"


@pytest.mark.parametrize(("leaves", "levels"), [(2, 1), (32, 1), (33, 2), (4096, 4)])
def test_a_patient_is_counted_once_in_every_level(leaves: int, levels: int) -> None:
    asked = Quantiles.model_validate(
        {"kind": "quantiles", "noise_multiplier": 4.0, "number": {"column": "x", "low": 0, "high": 1}, "leaves": leaves}
    )
    assert asked.sensitivity**2 == pytest.approx(levels, rel=1e-15)
    assert asked.edges == pytest.approx([place / leaves for place in range(leaves + 1)])
    # Below, above and missing are cells of their own.
    inside, outside = asked.total({"x": np.array([0.0])}, 1.0), asked.total({"x": np.array([np.nan])}, 1.0)
    assert (inside.sum(), outside.sum()) == (levels, 1)
