"""What a study is compared with, where patients have several rows."""

from __future__ import annotations

import numpy as np

from private_learning.records import Table
from private_learning.tasks import load
from simulation.baselines import baselines
from simulation.population import Population


def test_rows_that_fill_up_a_patient_are_of_no_class() -> None:
    # One patient of six rows, twelve of one: all but two of the eighteen rows are of class 1.
    patients = ["many"] * 6 + [f"p{place}" for place in range(12)]
    ill = [1] * 16 + [0] * 2
    age = np.linspace(0, 100, 18)
    table = Table.of({"patient": patients, "ill": ill, "age": age}, patient_column="patient")
    rows = load("logistic-regression", {"label": "ill", "column.age": "0..100"}).dataset(table)
    population = Population.of({"a": rows.by_patient(6)})
    found = baselines(load("logistic-regression", {"label": "ill", "column.age": "0..100"}), population, rows, seed=0)
    assert found.most_frequent == 16 / 18
