"""Records of a simulation: ways of dealing them out, files as clients, and test records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from client_sdk.errors import ConfigurationError
from private_learning.records import DataError, load
from private_learning.tasks import load as load_task
from simulation.records import Dealer, HowSplit, Source
from tests.factories.record_files import write_records
from tests.factories.settings import TASK_PARAMETERS, settings


@pytest.fixture
def records(tmp_path: Path) -> Path:
    return write_records(tmp_path / "records.csv", 160, 1)


def test_a_share_that_is_no_share_is_refused_from_python_too(records: Path) -> None:
    source = Source.read([records], None)
    for share in (float("nan"), -0.1, 1.0):
        with pytest.raises(ConfigurationError, match="at least 0 and below 1"):
            Dealer(source, HowSplit("iid"), 4, share)


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("iid", HowSplit("iid")),
        ("labels:2", HowSplit("labels", "2")),
        ("dirichlet:0.5", HowSplit("dirichlet", "0.5")),
        ("column:ward: 3", HowSplit("column", "ward: 3")),
    ],
)
def test_ways_are_read(text: str, parsed: HowSplit) -> None:
    assert HowSplit.parse(text) == parsed


@pytest.mark.parametrize(
    "text", ["", "iid:2", "labels", "labels:0", "labels:x", "dirichlet:0", "dirichlet:inf", "column:"]
)
def test_ways_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="say iid"):
        HowSplit.parse(text)


def test_every_file_is_a_client_by_its_name(tmp_path: Path) -> None:
    paths = [write_records(tmp_path / name, 12, seed) for seed, name in enumerate(("St. Mary.csv", "Mercy 2.csv"))]
    source = Source.read(paths, None)
    assert source.clients == ("st-mary", "mercy-2")
    assert Source.read(paths[:1], None).clients is None
    with pytest.raises(ConfigurationError, match="every file is one client"):
        Dealer(source, HowSplit("labels", "2"), None, 0.2)
    with pytest.raises(ConfigurationError, match="every file is one client"):
        Dealer(source, HowSplit("iid"), 3, 0.2)
    (tmp_path / "mercy-2.csv").write_bytes(paths[1].read_bytes())
    with pytest.raises(DataError, match="two files make one client's name"):
        Source.read([paths[1], tmp_path / "mercy-2.csv"], None)
    with pytest.raises(DataError, match=r"gone\.csv"):
        Source.read([tmp_path / "gone.csv"], None)


def by_patient(path: Path) -> Any:
    return load(path, patient_column="patient")


def test_a_share_of_the_patients_is_held_out_anew_under_every_seed(records: Path) -> None:
    dealer = Dealer(Source.read([records], None, by_patient), HowSplit("iid"), 4, 0.25)
    task, chosen = load_task("logistic-regression", TASK_PARAMETERS), settings()
    first, again, other = (dealer.deal(task, chosen, seed) for seed in (1, 1, 2))
    assert first.test is not None
    assert other.test is not None
    assert (len(first.test), sum(map(len, first.population.rows))) == (40, 120)
    assert first.population.digest() == again.population.digest() != other.population.digest()
    trained = first.population.dataset.inputs
    # No held-out row is trained on: the made-up ages and rates are all different.
    assert not (trained[:, None] == first.test.inputs[None]).all(2).any()


def test_without_a_share_there_is_no_test_and_own_test_records_are_taken_whole(records: Path, tmp_path: Path) -> None:
    task, chosen = load_task("logistic-regression", TASK_PARAMETERS), settings()
    bare = Dealer(Source.read([records], None), HowSplit("iid"), 4, 0.0).deal(task, chosen, 1)
    assert bare.test is None
    test = write_records(tmp_path / "test.csv", 30, 9)
    dealt = Dealer(Source.read([records], test), HowSplit("iid"), 4, 0.3).deal(task, chosen, 1)
    assert dealt.test is not None
    assert (len(dealt.test), sum(map(len, dealt.population.rows))) == (30, 160)


def test_a_column_names_the_clients(records: Path) -> None:
    task, chosen = load_task("logistic-regression", TASK_PARAMETERS), settings()
    source = Source.read([records], None)
    population = Dealer(source, HowSplit("column", "ward"), None, 0.0).deal(task, chosen, 1).population
    assert population.names == ("north", "south", "west")
    wards = [line.split(",")[3] for line in records.read_text().splitlines()[1:]]
    assert [len(rows) for rows in population.rows] == [wards.count(name) for name in population.names]
    with pytest.raises(ConfigurationError, match="has 3 values, and --clients says 4"):
        Dealer(source, HowSplit("column", "ward"), 4, 0.0).deal(task, chosen, 1)
    with pytest.raises(ConfigurationError, match="no such column"):
        Dealer(source, HowSplit("column", "floor"), None, 0.0).deal(task, chosen, 1)
    with pytest.raises(ConfigurationError, match="how many clients share the file"):
        Dealer(source, HowSplit("iid"), None, 0.0)


def test_targets_that_are_no_classes_are_not_dealt_out_by_them(records: Path) -> None:
    task = load_task("regression", {"label": "rate", "low": 0, "high": 10, "column.age": "0..100"})
    dealer = Dealer(Source.read([records], None), HowSplit("labels", "1"), 4, 0.0)
    with pytest.raises(ConfigurationError, match="targets are not classes"):
        dealer.deal(task, settings(), 1)


def test_a_fault_is_found_in_the_whole_file_before_anything_is_held_out(records: Path) -> None:
    lines = records.read_text().splitlines()
    lines[7] = f",{lines[7].partition(',')[2]}"
    records.write_text("\n".join(lines) + "\n")
    dealer = Dealer(Source.read([records], None), HowSplit("iid"), 4, 0.5)
    with pytest.raises(DataError, match="column age: 1 of 160 values are missing"):
        dealer.check(load_task("logistic-regression", TASK_PARAMETERS), settings())


def test_patients_that_a_study_sets_aside_are_not_trained_on(records: Path) -> None:
    question = {"prediction": "binary", "edges": [0.5], "noise_multiplier": 20.0}
    chosen = settings(
        statistics={"max_queries": 10, "max_cells": 100},
        evaluation={"share": 0.25, "every": 2, "question": question},
    )
    dealer = Dealer(Source.read([records], None, by_patient), HowSplit("iid"), 4, 0.0)
    population = dealer.deal(load_task("logistic-regression", TASK_PARAMETERS), chosen, 1).population
    # Of 160 patients 120 on average, with a standard deviation of 5.5.
    assert 92 <= len(population.dataset) <= 148
