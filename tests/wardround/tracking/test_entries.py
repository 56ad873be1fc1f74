"""Parameters, metrics and tags as a tracking server takes them."""

from __future__ import annotations

import json
import posixpath
import re
from datetime import UTC, datetime
from typing import Any

import hypothesis
from hypothesis import given
from hypothesis import strategies as st

from study_protocol.study.limit_statement import Spent
from study_protocol.study.messages import Metrics, RoundView
from tests.factories.settings import settings
from wardround.tracking.entries import MAX_KEY, MAX_TEXT, MetricPoint, parameters_of, points_of

# MLflow's own rule for keys, of every version since 2.0.
ALLOWED = re.compile(r"^[/\w.\- ]*$")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(min_size=1), inner),
    max_leaves=6,
)


def test_settings_become_flat_parameters() -> None:
    chosen = settings(bayesian=True, max_steps=7)
    parameters = parameters_of(chosen.as_json())
    assert parameters["privacy.max_steps"] == "7"
    assert parameters["training.task"] == "logistic-regression"
    assert parameters["training.task_parameters.column.age"] == "0..100"
    assert json.loads(parameters["privacy.limits"]) == chosen.as_json()["privacy"]["limits"]
    assert "privacy.central_noise" not in parameters


@hypothesis.settings(max_examples=50)
@given(st.dictionaries(st.text(min_size=1), JSON))
def test_any_settings_become_keys_and_values_that_mlflow_takes(entries: dict[str, Any]) -> None:
    for key, text in parameters_of(entries).items():
        assert ALLOWED.fullmatch(key)
        assert posixpath.normpath(key) == key or key.startswith(".")
        assert 0 < len(key) <= MAX_KEY
        assert 0 < len(text) <= MAX_TEXT


def test_entries_that_would_share_a_key_keep_a_key_each() -> None:
    columns = {"Größe (cm)": "1", "Gr__e _cm_": "2", "a": {"b": "3"}, "a.b": "4", "x" * 300: "5", "x" * 301: "6"}
    parameters = parameters_of(columns)
    assert sorted(parameters.values()) == list("123456")
    assert parameters_of(columns) == parameters


def test_a_long_value_says_that_it_is_cut() -> None:
    (text,) = parameters_of({"columns": ["age"] * 5000}).values()
    assert (len(text), text.endswith("(settings.json has the rest)")) == (MAX_TEXT, True)


def round_view(number: int, **changes: Any) -> RoundView:
    view = RoundView(
        round=number,
        state="released",
        model_version=number,
        started_at=datetime(2026, 11, 27, 12, tzinfo=UTC),
        deadline=None,
        ended_at=datetime(2026, 11, 27, 13, tzinfo=UTC),
        reason=None,
        metrics=None,
        spent=[Spent(level="instance", definition="bayesian", epsilon=2.0, spent=0.5, steps=3, squares=0.25)],
        clients=None,
    )
    return view.model_copy(update=changes)


def test_points_have_the_round_as_step_and_the_time_of_its_end() -> None:
    ended = int(datetime(2026, 11, 27, 13, tzinfo=UTC).timestamp() * 1000)
    # A metric may have any name, also one that a limit's value has.
    metrics = Metrics(evaluation_set="held-out", values={"clip_norm": 0.75})
    points = points_of(
        [round_view(1), round_view(2, spent=None), round_view(3, spent=[], metrics=metrics, clip_norm=0.5)]
    )
    assert points == [
        MetricPoint("epsilon_spent/instance/bayesian", 1, 0.5, ended),
        MetricPoint("epsilon_limit/instance/bayesian", 1, 2.0, ended),
        MetricPoint("noised_steps/instance/bayesian", 1, 3.0, ended),
        MetricPoint("sum_of_squares/instance/bayesian", 1, 0.25, ended),
        MetricPoint("training/clip_norm", 3, 0.5, ended),
        MetricPoint("clip_norm", 3, 0.75, ended),
    ]
