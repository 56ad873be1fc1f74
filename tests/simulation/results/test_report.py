"""The results of several seeds: means, deviations, the costliest ε, and warnings."""

from __future__ import annotations

import json
import math

import pytest

from simulation.results.report import SeedSpread
from tests.simulation.reports import report, run


def test_a_spread_has_a_deviation_from_two_seeds_on() -> None:
    assert SeedSpread.of([]) is None
    assert SeedSpread.of([0.5]) == SeedSpread(0.5, None)
    several = SeedSpread.of([0.5, 0.7, 0.9])
    assert several is not None
    assert several.mean == pytest.approx(0.7)
    # Of a sample: squares over one less than the count.
    assert several.deviation == pytest.approx(math.sqrt((0.04 + 0 + 0.04) / 2))


def test_points_go_by_released_models_as_far_as_every_seed_has_them() -> None:
    shown = report(run(0, 0.5, None, 0.7, 0.8), run(1, 0.6, 0.9, spent=2.0))
    first, second = shown.points()
    assert (first.released, second.released) == (1, 2)
    assert first.metric is not None
    assert second.metric is not None
    assert (first.metric.mean, second.metric.mean) == (pytest.approx(0.55), pytest.approx(0.8))
    # The costliest seed: 2 a round in its second, and 1 a round in the other's third.
    assert second.spent == (4.0, 2.0)


def test_where_a_seed_has_no_finite_epsilon_there_is_none() -> None:
    shown = report(run(0, 0.5), run(1, 0.6, spent=math.inf))
    assert shown.points()[0].spent == (None, None)


def test_the_running_number_is_that_of_the_costliest_seed() -> None:
    assert report(run(1, 0.5), run(2, 0.5, spent=2.0)).running() == {"instance classical": 1.6}
    assert report(run(1, 0.5), run(2, 0.5, spent=math.inf)).running() == {"instance classical": None}
    assert report().running() == {}


def test_what_is_compared_with_is_a_mean_over_seeds() -> None:
    shown = report(run(0, 0.5, 0.7), run(1, 0.9))
    assert shown.metric == "accuracy"
    assert shown.reached is not None
    assert shown.reached.mean == pytest.approx(0.8)
    assert shown.without_noise == SeedSpread(0.8, 0.0)
    assert shown.pooled == SeedSpread(0.9, 0.0)
    assert shown.single_client is not None
    assert shown.single_client.mean == pytest.approx(0.6)
    assert shown.frequent_class == SeedSpread(0.4, 0.0)
    bare = report(run(0, 0.5, compared=False))
    assert (bare.pooled, bare.single_client, bare.without_noise, bare.frequent_class) == (None,) * 4


def test_without_a_measurement_there_is_no_metric() -> None:
    shown = report(run(0, None))
    assert (shown.metric, shown.reached, shown.points(), shown.warnings()) == (None, None, [], [])


@pytest.mark.parametrize(
    ("accuracy", "words"),
    [
        (0.8, []),
        (0.55, ["a hospital alone does better on average"]),
        (0.4, ["a hospital alone does better", "the noise leaves nothing of the model"]),
    ],
)
def test_a_study_that_is_no_better_than_doing_without_is_warned_of(accuracy: float, words: list[str]) -> None:
    warnings = report(run(0, accuracy)).warnings()
    assert len(warnings) == len(words)
    assert all(word in warning for word, warning in zip(words, warnings, strict=True))


def test_a_comparison_that_failed_is_named_with_its_seed() -> None:
    missed = run(3, 0.5).without("pooled and alone", ValueError("no rows")).missed
    assert missed == ("seed 3, nothing to compare with (pooled and alone): no rows",)


def test_json_holds_rounds_events_and_the_summary() -> None:
    written = json.loads(json.dumps(report(run(0, 0.5, 0.7)).to_dict()))
    (seed,) = written["seeds"]
    assert [view["round"] for view in seed["rounds"]] == [1, 2]
    assert seed["ledger"] == [{"kind": "reserved", "round": 1}, {"kind": "settled", "round": 1, "report": None}]
    assert written["summary"]["reached"] == {"mean": 0.7, "standard_deviation": None}
    assert written["summary"]["most_frequent"]["mean"] == 0.4
