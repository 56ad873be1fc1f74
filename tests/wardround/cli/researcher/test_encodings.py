"""Encodings beside the study's own: which are run, under which seeds, and for how long."""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np
import pytest

from client_sdk.errors import ConfigurationError
from private_learning.records import Table
from private_learning.tasks.columns import read_columns
from simulation.backends.base import Loop
from simulation.records import Dealer, HowSplit, Source
from simulation.runs import Simulation
from study_protocol.study.settings import StudySettings
from tests.factories.settings import settings
from wardround.cli.researcher.encodings import DECLARED, compare_encodings, encodings_of

DRAW = np.random.default_rng(1)
CRP = np.exp(2 + DRAW.normal(size=160))
RECORDS = Table.of(
    {
        "crp": CRP,
        "ward": np.where(DRAW.uniform(size=160) < 0.9, "a", "b"),
        "ill": (np.median(CRP) < CRP).astype(int),
    }
)


def study(crp: str = "0..400", ward: str = "a|b", **training: Any) -> StudySettings:
    parameters = {"label": "ill", "column.crp": crp, "column.ward": ward}
    # Next to no noise, and steps that are long enough to learn.
    return settings(
        training={"task_parameters": parameters, "optimiser": {"name": "plain", "learning_rate": 20.0}} | training,
        max_steps=6,
    )


def simulation(chosen: StudySettings, share: float = 0.25) -> Simulation:
    return Simulation(chosen, Dealer(Source((RECORDS,), None, None), HowSplit("iid"), 4, share), "loop", Loop)


def test_ways_begin_with_the_study_s_own_and_none_is_twice() -> None:
    ways = dict(encodings_of(study(), (RECORDS,)))
    assert list(ways) == [DECLARED, "typical ranges and frequencies", "with logarithms"]
    assert ways[DECLARED] == {}
    assert ways["typical ranges and frequencies"] == {"crp": "0..400; typical=1..26", "ward": "a|b; frequencies=90|10"}
    assert ways["with logarithms"]["crp"] == "0..400; typical=1..26; log"
    own = ways["with logarithms"]
    shaped = dict(encodings_of(study(crp="0..400; typical=1..200", ward=own["ward"]), (RECORDS,)))
    assert shaped["ranges alone"] == {"crp": "0..400", "ward": "a|b"}
    assert list(shaped) == [DECLARED, "ranges alone", "typical ranges and frequencies", "with logarithms"]
    assert next(encodings_of(study(crp=own["crp"], ward=own["ward"]), (RECORDS,))) == (DECLARED, {})
    for columns in (*ways.values(), *shaped.values()):
        read_columns({f"column.{name}": text for name, text in columns.items()} | {"column.other": "0..1"})


def test_every_way_runs_the_same_seeds_on_the_same_patients() -> None:
    own, *others = compare_encodings(simulation(study()), range(5, 7), seconds=1e6)
    for each in (own, *others):
        assert [run.seed for run in each.report.runs] == [5, 6]
        assert each.report.reached is not None
    # The encoded records differ, and nothing else: without a difference there is no gain.
    gain = own.gain(own)
    assert gain is not None
    assert (gain.mean, gain.deviation) == (0, 0)
    best = others[-1].gain(own)
    assert best is not None
    assert best.mean == pytest.approx(others[-1].report.reached.mean - own.report.reached.mean)  # type: ignore[union-attr]
    shown = others[-1].to_dict()
    assert shown["columns"] == others[-1].columns
    assert shown["seeds"] == [5, 6]


def test_no_seed_begins_after_the_time_and_one_is_always_run() -> None:
    ticks = count(0, 10)
    runs = compare_encodings(simulation(study()), range(9), seconds=20, clock=lambda: next(ticks))
    assert [len(each.report.runs) for each in runs] == [1, 1, 1]
    ticks = count(0, 10)
    runs = compare_encodings(simulation(study()), range(9), seconds=0, clock=lambda: next(ticks))
    assert [len(each.report.runs) for each in runs] == [1, 1, 1]


def test_without_test_records_nothing_is_gained() -> None:
    own, *others = compare_encodings(simulation(study(), share=0.0), range(1), seconds=0)
    assert others[0].gain(own) is None
    assert own.to_dict()["reached"] is None


def test_tasks_without_columns_have_no_encodings() -> None:
    images = {"task": "cnn", "task_parameters": {"height": 8, "width": 8, "classes": 2}}
    with pytest.raises(ConfigurationError, match="--compare-encodings is for tasks that read the columns of a table"):
        next(encodings_of(settings(training=images), (RECORDS,)))
