"""Survival without noise is lifelines' on the pooled patients after the same binning; with noise curves only fall."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lifelines import KaplanMeierFitter, datasets
from lifelines.statistics import logrank_test, multivariate_logrank_test

from study_protocol.queries.answer import Answer, NoisedSum
from tests.factories.questions import answer_without_noise, column, question

# lifelines' own, about pandas.
pytestmark = pytest.mark.filterwarnings("ignore:Starting with pandas version 4")
EDGES = tuple(float(edge) for edge in range(0, 65, 5))


def asked(time: str, event: str, edges: tuple[float, ...] = EDGES, **entries: Any) -> Any:
    return question(
        {
            "kind": "survival",
            "time": {"column": time, "edges": list(edges)},
            "event": {"column": event, "categories": ["1"]},
        },
        **entries,
    )


def binned(times: Any, events: Any, edges: tuple[float, ...]) -> tuple[Any, Any]:
    """As the question does: at the end of their bins; what is later is censored at the last edge."""
    places = np.searchsorted(edges, times, side="right")
    late = places == len(edges)
    return np.array(edges)[np.minimum(places, len(edges) - 1)], (np.asarray(events) == 1) & ~late


def log_rank_of(answer: Answer) -> list[Any]:
    return list(next(table for table in answer.tables if table.name == "log-rank").rows[0])


@pytest.mark.parametrize(
    ("cohort", "time", "event", "by", "edges"),
    [
        ("load_waltons", "T", "E", "group", EDGES),
        ("load_rossi", "week", "arrest", "race", tuple(float(edge) for edge in range(0, 53, 4))),
        ("load_gbsg2", "time", "cens", "horTh", tuple(float(edge) for edge in range(0, 2701, 90))),
        ("load_lung", "time", "status", "sex", tuple(float(edge) for edge in range(0, 901, 30))),
    ],
)
def test_curves_medians_and_test_are_those_of_lifelines(
    cohort: str, time: str, event: str, by: str, edges: tuple[float, ...]
) -> None:
    data: pd.DataFrame = getattr(datasets, cohort)()
    groups = sorted(str(one) for one in data[by].unique())
    columns = {
        time: data[time].to_numpy(float),
        event: data[event].to_numpy(float),
        by: data[by].astype(str).to_numpy(object),
    }
    answer = answer_without_noise(asked(time, event, edges, by={"column": by, "categories": groups}), columns)
    survival = column(answer, "survival").reshape(-1, len(edges))
    at_risk = column(answer, "at-risk").reshape(-1, len(edges))
    times, events = binned(columns[time], columns[event], edges)
    for place, group in enumerate(groups):
        mine = columns[by] == group
        fitted = KaplanMeierFitter().fit(times[mine], events[mine])
        expected = fitted.survival_function_at_times(edges).to_numpy()
        followed = ~np.isnan(survival[place])
        assert followed.sum() > len(edges) / 2
        assert (at_risk[place][:-1][~followed[1:]] == 0).all()
        assert survival[place][followed] == pytest.approx(expected[followed], abs=1e-9)
        assert at_risk[place].tolist() == [(columns[time][mine] >= edge).sum() for edge in edges]
        median = column(answer, "median")[place]
        if np.isinf(fitted.median_survival_time_):
            assert np.isnan(median)
        else:
            end = edges.index(fitted.median_survival_time_)
            assert edges[end - 1] < median <= edges[end]
            assert np.interp(median, edges, expected) == pytest.approx(0.5, abs=1e-9)
    test = multivariate_logrank_test(times, columns[by], events)
    assert log_rank_of(answer) == pytest.approx([test.test_statistic, len(groups) - 1, test.p_value], rel=1e-9)


def test_more_than_two_groups_are_compared_as_lifelines_does() -> None:
    data = datasets.load_rossi()
    columns = {name: data[name].to_numpy(float) for name in ("week", "arrest", "age")}
    by = {"column": "age", "edges": [20, 25, 30]}
    edges = tuple(float(edge) for edge in range(53))
    times, events = binned(columns["week"], columns["arrest"], edges)
    test = multivariate_logrank_test(times, np.digitize(columns["age"], [20, 25, 30]), events)
    found = log_rank_of(answer_without_noise(asked("week", "arrest", edges, by=by), columns))
    assert found == pytest.approx([test.test_statistic, 3, test.p_value], rel=1e-9)


def test_presence_compares_those_with_a_value_and_those_without() -> None:
    data = datasets.load_waltons()
    marker = np.where(data["group"] == "control", np.nan, 1.0)
    columns = {"T": data["T"].to_numpy(float), "E": data["E"].to_numpy(float), "marker": marker}
    answer = answer_without_noise(asked("T", "E", by={"column": "marker", "presence": True}), columns)
    times, events = binned(columns["T"], columns["E"], EDGES)
    absent = np.isnan(marker)
    test = logrank_test(times[absent], times[~absent], events[absent], events[~absent])
    assert log_rank_of(answer)[0] == pytest.approx(test.test_statistic, rel=1e-9)


def test_who_is_left_out_and_who_is_followed_to_the_end_is_public() -> None:
    columns = {
        "t": np.array([-1.0, np.nan, 3.0, 3.0, 60.0, 99.0, 5.0, 4.999]),
        "e": np.array(["1", "1", None, "no", "1", "1", "1", "1"], object),
    }
    answer = answer_without_noise(asked("t", "e", times=[5.0]), columns)
    assert column(answer, "patients").tolist() == [5, 3]
    assert column(answer, "at-risk").tolist() == [5, 3, *[2] * 11]
    assert column(answer, "survival")[:3] == pytest.approx([1, 4 / 5, 4 / 5 * 2 / 3])
    assert column(answer, "at-times").tolist() == pytest.approx([4 / 5])
    assert not any(table.name == "log-rank" for table in answer.tables)


@settings(max_examples=60, deadline=None)
@given(
    std=st.sampled_from([0.0, 0.5, 4.0, 100.0]), seed=st.integers(0, 2**32 - 1), count=st.sampled_from([0, 5, 60, 400])
)
def test_whatever_the_noise_curves_fall_from_one_and_end_above_zero(std: float, seed: int, count: int) -> None:
    source = np.random.default_rng(seed)
    wanted = asked("t", "e", by={"column": "g", "categories": ["a", "b"]}, times=[10, 20])
    columns = {
        "t": source.exponential(20, count),
        "e": source.choice([0.0, 1.0], count),
        "g": source.choice(np.array(["a", "b", "c", None], object), count),
    }
    spacing = wanted.grid().spacing
    total = wanted.total(columns, spacing) * spacing + source.normal(0, 1, wanted.cells) * std
    answer = wanted.answer(NoisedSum(total, std, 1))
    assert answer == Answer.model_validate_json(answer.model_dump_json())
    survival = column(answer, "survival").reshape(4, -1)
    for curve, low, high in zip(
        survival,
        column(answer, "survival", "low").reshape(4, -1),
        column(answer, "survival", "high").reshape(4, -1),
        strict=True,
    ):
        shown = curve[~np.isnan(curve)]
        assert shown[0] == 1
        assert (np.diff(shown) <= 0).all()
        assert shown[-1] >= 0
        assert ((low >= 0) & (low <= high) & (high <= 1)).all()
    assert (np.diff(column(answer, "at-risk").reshape(4, -1)) <= 0).all()
    assert column(answer, "at-risk").min() >= 0
    (statistic, _, p_value) = log_rank_of(answer)
    assert statistic is None or (statistic >= 0 and 0 <= p_value <= 1)
