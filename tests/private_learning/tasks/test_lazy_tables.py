"""Tasks make the same inputs and targets of a table that is read row group by row group as of one in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from private_learning.records import DataError, LazyTable, Records, Table, load
from private_learning.records.row_groups import Parts
from private_learning.tasks import TaskDataset, dataset_of, names
from private_learning.tasks import load as load_task
from private_learning.tasks.inputs import LazyInputs, in_memory, joined
from private_learning.tasks.reading import inputs_of, inspected
from private_learning.tasks.sequences import CodeSequences
from private_learning.tasks.tables import LogisticRegression, TableTask
from tests.factories.made_up import made_up
from wardround.cli.lead.templates import study_values

pyarrow: Any = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
parquet: Any = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")

TASKS = {name: load_task(name, study_values(task=name)["training"]["task_parameters"]) for name in sorted(names())}
# Histories are several tables, and always read as a whole.
ON_TABLES = [
    name for name, task in TASKS.items() if isinstance(task, TableTask) and not isinstance(task, CodeSequences)
]


def written(path: Path, columns: dict[str, Any], rows: int = 7) -> tuple[Table, LazyTable]:
    parquet.write_table(pyarrow.table(columns), path, row_group_size=rows)
    here, there = (load(path, patient_column="who", lazy=lazy) for lazy in (False, True))
    assert isinstance(there, LazyTable)
    assert isinstance(here, Table)
    return here, there


def same(here: TaskDataset, there: TaskDataset) -> None:
    assert isinstance(there.inputs, LazyInputs)
    assert torch.equal(in_memory(there.inputs).view(torch.int32), in_memory(here.inputs).view(torch.int32))
    assert here.targets.numpy().tobytes() == there.targets.numpy().tobytes()
    assert here.patients == there.patients


@pytest.mark.parametrize("name", ON_TABLES)
def test_every_task_makes_the_same_of_both(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("private_learning.records.lazy_table.PART_ROWS", 11)
    task = TASKS[name]
    made = made_up(task, 60)
    assert isinstance(made, Table)
    columns = {name: column.tolist() for name, column in made.columns.items()}
    here, there = written(tmp_path / "a.parquet", columns | {"who": [f"p{row // 2}" for row in range(60)]})
    found = [dataset_of(task, records) for records in (here, there)]
    same(*found)
    assert inspected(task, here) == inspected(task, there)
    # Alone, and with others in another order.
    rows = torch.tensor([41, 3, 59, 3, 20])
    together = found[1].inputs[rows]
    assert torch.equal(together, found[0].inputs[rows])
    assert all(torch.equal(found[1].inputs[rows[k : k + 1]], together[k : k + 1]) for k in range(5))
    same(*(one.without(["p3"]) for one in found))
    grouped = [one.without(["p3"]).by_patient(2) for one in found]
    assert grouped[1].grouped
    same(*grouped)
    both = joined([found[1].inputs, found[1].without(["p0"]).inputs])
    assert torch.equal(in_memory(both), torch.cat([in_memory(found[0].inputs), in_memory(found[0].inputs)[2:]]))


def test_numbers_and_words_in_one_column_are_what_they_are_when_it_is_read_as_a_whole(tmp_path: Path) -> None:
    # Row groups of 7: the first two of `lab` and `pain` hold numbers alone; `dose` is text that says numbers.
    count = 40
    columns = {
        "who": list(range(count)),
        "lab": [f"{row / 7}" if row < 14 else ("n/d" if row % 5 == 0 else f" {row}.0 ") for row in range(count)],
        "pain": [["1", "2.0", "3"][row % 3] if row < 14 else ["none", "1.0"][row % 2] for row in range(count)],
        "dose": ["-0" if row % 4 == 0 else f"{row}e-2" for row in range(count)],
        "ill": ["1.0" if row % 3 else "0" for row in range(count)],
    }
    parameters = {
        "label": "ill",
        "column.lab": "0..40; missing=20; missing-values=n/d",
        "column.pain": "none|1|2|3",
        "column.dose": "-1..1",
    }
    here, there = written(tmp_path / "a.parquet", columns)
    assert all(column.is_text for column in here.columns.values())
    task = load_task("logistic-regression", parameters)
    same(dataset_of(task, here), dataset_of(task, there))
    some = [3, 0, 12]
    assert torch.equal(inputs_of(task, there)[torch.tensor(some)], task.inputs(here.take(some)))


def test_faults_are_counted_over_all_parts_and_end_no_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("private_learning.records.lazy_table.PART_ROWS", 8)
    columns = {
        "who": list(range(30)),
        "lab": ["10"] * 9 + ["high"] * 14 + ["10"] * 7,
        "ward": ["a", "b", None] * 10,
        "dose": ["n/d", "x", "1"] * 10,
        "ill": [0, 1] * 15,
    }
    here, there = written(tmp_path / "a.parquet", columns)
    parameters = {"label": "ill", "column.lab": "0..10", "column.ward": "a|b", "column.dose": "0..2; missing=2"}
    task = load_task("logistic-regression", parameters)
    for records, place in ((there, "row"), (here, "row")):
        with pytest.raises(DataError) as refused:
            dataset_of(task, records)
        words = str(refused.value)
        assert f"column lab: 14 of 30 values are no numbers, the first in {place} 10, which is text" in words
        assert f"column ward: 10 of 30 values are missing, and the study allows none, the first in {place} 3" in words
        assert f"column dose: 20 of 30 values are no numbers, the first in {place} 1" in words
    # A file that changed: what fits nowhere is the middle of a range, no category, or missing.
    inputs = dataset_of(task, there, checked=True).inputs
    assert inputs[torch.tensor([0, 10, 2])].tolist() == [
        [1.0, 1.0, 1.0, 1.0, 0.0],
        [1.0, 1.0, 0.0, 0.0, 1.0],
        [0.0, 0.0, 1.0, 0.0, 0.0],
    ]


def test_only_the_columns_of_the_task_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = {name: np.linspace(0, 1, 30) for name in "abcdef"} | {"who": range(30), "ill": [0, 1] * 15}
    _, there = written(tmp_path / "a.parquet", columns)
    read: set[str] = set()
    decode = Parts.column

    def seen(self: Parts, part: int, name: str) -> Any:
        read.add(name)
        return decode(self, part, name)

    monkeypatch.setattr(Parts, "column", seen)
    task = load_task("logistic-regression", {"label": "ill", "column.b": "0..1", "column.d": "0..1"})
    in_memory(dataset_of(task, there).inputs)
    assert read == {"b", "d", "ill"}


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"ill": [0.0] * 20 + [7.0] + [1.0] * 9}, "not whole numbers from 0 to 1, the first in row 21"),
        ({"b": [0.5] * 25 + [None] + [0.5] * 4}, "column b: 1 of 30 values are missing, .* the first in row 26"),
        ({"b": ["x"] * 30}, "column b: .* are no numbers, the first in row 1"),
        ({"B": [0.5] * 30, "b": None}, "did you mean 'B'"),
    ],
    ids=["label", "missing", "text", "lacks"],
)
def test_what_the_task_cannot_read_is_found_at_the_start(
    tmp_path: Path, broken: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("private_learning.records.lazy_table.PART_ROWS", 8)
    columns = {"b": [0.5] * 30, "ill": [0.0, 1.0] * 15, "who": list(range(30))} | broken
    _, there = written(tmp_path / "a.parquet", {name: cells for name, cells in columns.items() if cells is not None})
    with pytest.raises(DataError, match=message):
        dataset_of(load_task("logistic-regression", {"label": "ill", "column.b": "0..1"}), there)


class Centred(LogisticRegression):
    """A task of somebody's own, whose inputs of one row would depend on the others: they are made one by one."""

    def inputs(self, data: Records) -> torch.Tensor:
        found = super().inputs(data)
        return found - found.mean(dim=0) + len(data)


def test_a_task_with_inputs_of_its_own_is_given_one_row_at_a_time(tmp_path: Path) -> None:
    _, there = written(tmp_path / "a.parquet", {"b": [0.5, 0.25] * 5, "ill": [0, 1] * 5, "who": range(10)})
    task = Centred({"label": "ill", "column.b": "0..1"})
    assert inputs_of(task, there)[torch.tensor([1, 2, 3])].tolist() == [[1.0]] * 3
