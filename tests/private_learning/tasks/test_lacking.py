"""A table without a column that a site may lack is read as one whose column is wholly empty, bit by bit."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from private_learning.records import DataError, Histories, LazyTable, Records, Table, load
from private_learning.records.mapping import TableMapping
from private_learning.tasks import Task, TaskError, dataset_of, names
from private_learning.tasks import load as load_task
from private_learning.tasks.columns import PREFIX, encode_columns, read_columns, require_readable
from private_learning.tasks.inputs import in_memory, joined
from private_learning.tasks.lacking import lacking_names, with_lacking
from private_learning.tasks.reading import inputs_of, inspected
from private_learning.tasks.tables import TableTask
from private_learning.tasks.typical import column_text
from tests.factories.made_up import made_up, saved
from wardround.cli.lead.templates import study_values

MAY_LACK = {
    "column.z lab": "0..20; missing=1; missing-values=-1; typical=0.5..4; log; site-may-lack",
    "column.z seen": "2020-01-01..2023-12-31; missing=2021-01-01; site-may-lack",
    "column.z kind": "a|b|7; missing; site-may-lack; frequencies=8|1|1",
}
LACKING = [name.removeprefix(PREFIX) for name in MAY_LACK]


def _tasks() -> dict[str, Task]:
    tasks: dict[str, Task] = {}
    for name in sorted(names()):
        parameters = study_values(task=name)["training"]["task_parameters"]
        if any(key.startswith(PREFIX) for key in parameters):
            tasks[name] = load_task(name, {**parameters, **MAY_LACK})
    return tasks


TASKS = _tasks()


def bits(task: Task, records: Records) -> tuple[bytes, bytes, bytes, tuple[str, ...]]:
    dataset = dataset_of(task, records)
    inputs, predicted = in_memory(dataset.inputs), in_memory(inputs_of(task, records))
    return inputs.numpy().tobytes(), predicted.numpy().tobytes(), dataset.targets.numpy().tobytes(), dataset.patients


def without(file: Path, folder: Path, *, emptied: bool) -> Path:
    """The same CSV without the columns, or with all of their cells empty."""
    with file.open(newline="") as opened:
        rows = list(csv.DictReader(opened))
    kept = [name for name in rows[0] if emptied or name not in LACKING]
    folder.mkdir(exist_ok=True)
    with (folder / file.name).open("w", newline="") as opened:
        writer = csv.DictWriter(opened, kept)
        writer.writeheader()
        writer.writerows({name: "" if name in LACKING else row[name] for name in kept} for row in rows)
    return folder / file.name


def test_every_task_with_columns_is_tried() -> None:
    assert set(TASKS) == {name for name in names() if isinstance(load_task(name, _example(name)), TableTask)}


def _example(name: str) -> dict[str, Any]:
    return study_values(task=name)["training"]["task_parameters"]


@pytest.mark.parametrize("name", TASKS)
def test_a_table_without_the_columns_gives_the_tensors_of_one_where_they_are_empty(name: str, tmp_path: Path) -> None:
    task = TASKS[name]
    assert isinstance(task, TableTask)
    made = made_up(task, 40)
    tables: list[Table] = []
    for emptied in (True, False):
        folder = tmp_path / str(emptied)
        folder.mkdir()
        path = saved(made, folder)
        if isinstance(made, Histories):
            without(path / "patients.csv", path, emptied=emptied)
        else:
            path = without(path, folder, emptied=emptied)
        table = load(path, patient_column="patient" if isinstance(made, Histories) else None)
        assert isinstance(table, Table)
        tables.append(table)
    empty, lacking = tables
    assert set(empty.columns) - set(lacking.columns) == set(LACKING)
    assert bits(task, lacking) == bits(task, empty)
    assert torch.equal(task.round_inputs(lacking), task.round_inputs(empty))
    assert inspected(task, lacking) == inspected(task, empty)
    # The indicators are 1, and what stands beside them is that of the public constant.
    counts = {use.name: use.missing for use in inspected(task, lacking)}
    assert [counts[name] for name in LACKING] == [40, 40, 40]


def test_a_table_on_disk_without_the_columns_is_one_where_they_are_empty(tmp_path: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    task = TASKS["logistic-regression"]
    made = made_up(task, 40)
    assert isinstance(made, Table)
    full = {name: column.tolist() for name, column in made.columns.items()} | {"who": [f"p{k // 2}" for k in range(40)]}
    given = {name: cells for name, cells in full.items() if name not in LACKING}
    kinds = {"z lab": pyarrow.float64(), "z seen": pyarrow.date32(), "z kind": pyarrow.string()}
    empty = {name: pyarrow.nulls(40, kind) for name, kind in kinds.items()}
    tables: list[LazyTable] = []
    for name, columns in {"full": full, "empty": given | empty, "lacking": given}.items():
        parquet.write_table(pyarrow.table(columns), tmp_path / f"{name}.parquet", row_group_size=7)
        table = load(tmp_path / f"{name}.parquet", patient_column="who", lazy=True)
        assert isinstance(table, LazyTable)
        tables.append(table)
    assert bits(task, tables[2]) == bits(task, tables[1]) == bits(task, tables[2].in_memory())
    assert inspected(task, tables[2]) == inspected(task, tables[1])
    # One hospital that lacks them takes nothing from one that does not.
    datasets = [dataset_of(task, table).inputs for table in tables]
    both = in_memory(joined([datasets[0], datasets[2], datasets[0]]))
    assert torch.equal(both, torch.cat([in_memory(datasets[place]) for place in (0, 1, 0)]))
    rows = torch.tensor([41, 3, 77, 40])
    assert torch.equal(joined([datasets[0], datasets[2]])[rows], both[rows])


def test_the_digest_of_a_table_is_that_of_what_it_holds() -> None:
    task = TASKS["logistic-regression"]
    assert isinstance(task, TableTask)
    table = Table.of({"age": [40], "chol": [200], "pain": [1], "ill": [1]})
    before = table.digest()
    dataset_of(task, table)
    assert table.digest() == before
    assert set(table.columns) == {"age", "chol", "pain", "ill"}


def test_a_column_that_lacks_without_the_option_is_refused() -> None:
    columns = read_columns({"column.age": "18..90; missing=50", "column.lab": "0..20; missing=1; site-may-lack"})
    table = Table.of({"Age": [40.0, 50.0]})
    for refused in (
        lambda: encode_columns(columns, with_lacking(columns, table).columns),
        lambda: require_readable(columns, [table]),
    ):
        with pytest.raises(DataError, match=r"lacks 1 of the study's columns: 'age' \(did you mean 'Age'\?\)"):
            refused()
    assert lacking_names(columns, table.columns) == ["lab"]


def test_a_lacking_column_is_the_constant_and_an_indicator_of_one() -> None:
    columns = read_columns({"column.age": "0..100", "column.lab": "0..20; missing=5; site-may-lack", **MAY_LACK})
    table = with_lacking(columns, Table.of({"age": [50.0, 100.0]}))
    start = encode_columns(columns[:2], table.columns)
    assert start.tolist() == [[0.0, -0.5, 1.0], [1.0, -0.5, 1.0]]
    kind = encode_columns(columns[2:3], table.columns)
    assert kind.tolist() == [[0.0, 0.0, 0.0, 1.0]] * 2
    assert np.isfinite(encode_columns(columns, table.columns)).all()


def test_a_column_that_is_there_is_never_replaced() -> None:
    columns = read_columns(MAY_LACK)
    table = Table.of({"z lab": [3.0], "z kind": ["a"], "z seen": ["2021-05-05"]})
    assert with_lacking(columns, table) is table


def test_a_column_that_may_not_be_read_counts_as_lacking_in_both_kinds_of_table(tmp_path: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = read_columns({"column.age": "0..100", "column.lab": "0..20; missing=5; site-may-lack"})
    parquet.write_table(pyarrow.table({"age": [50.0, 100.0], "lab": [1.0, 2.0]}), tmp_path / "a.parquet")
    for lazy in (False, True):
        table = load(tmp_path / "a.parquet", lazy=lazy)
        assert isinstance(table, Table)
        hidden = with_lacking(columns, table.without_columns({"lab"}))
        assert encode_columns(columns, hidden.columns).tolist() == [[0.0, -0.5, 1.0], [1.0, -0.5, 1.0]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0..20; site-may-lack", "needs 'missing'"),
        ("a|b; site-may-lack", "needs 'missing'"),
        ("0..20; missing=1; site-may-lack=yes", "stands alone, without a value"),
        ("0..20; missing=1; site-may-lack; site-may-lack", "once each"),
        ("0..20; missing=1; Site-May-Lack", "once each"),
        ("a|b; unmapped-is-missing", "unmapped-is-missing needs 'missing'"),
        ("a|b; missing; unmapped-is-missing=x", "unmapped-is-missing stands alone"),
    ],
)
def test_other_forms_are_refused(text: str, words: str) -> None:
    with pytest.raises(TaskError, match=rf"column\.lab: .*{words}"):
        read_columns({"column.lab": text})


@pytest.mark.parametrize("text", [*MAY_LACK.values(), "a|b; missing; site-may-lack; unmapped-is-missing"])
def test_the_option_is_kept_where_a_column_is_written(text: str) -> None:
    (column,) = read_columns({"column.lab": text})
    assert read_columns({"column.lab": column_text(column)}) == (column,)


@pytest.mark.parametrize("lazy", [False, True])
def test_codes_that_the_mapping_does_not_know_are_missing_where_the_study_says_so(tmp_path: Path, lazy: bool) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    stored = {"g": ["M", "F", "X", None, "M"], "n": ["low", "odd", "high", None, "high"], "ill": [0, 1, 0, 1, 1]}
    wanted = {"sex": ["male", "female", None, None, "male"], "lab": [2.0, None, 6.0, None, 6.0], "ill": stored["ill"]}
    parquet.write_table(pyarrow.table(stored), tmp_path / "a.parquet")
    (tmp_path / "columns.toml").write_text(
        '[columns]\nsex = { from = "g", map = { M = "male", F = "female" } }\n'
        'lab = { from = "n", map = { low = "2", high = "6" } }\n'
    )
    mapped = TableMapping.read(tmp_path / "columns.toml").applied(load(tmp_path / "a.parquet", lazy=lazy))
    parameters = {"label": "ill", "column.sex": "female|male; missing", "column.lab": "0..20; missing=1"}
    says_so = {name: f"{text}; unmapped-is-missing" for name, text in parameters.items() if name != "label"}
    task = load_task("logistic-regression", parameters | says_so)
    assert bits(task, mapped) == bits(task, Table.of(wanted))
    assert {use.name: (use.missing, use.wrong) for use in inspected(task, mapped)} == {"lab": (2, 0), "sex": (2, 0)}
    for name in ("sex", "lab"):
        others = {column: text for column, text in says_so.items() if column != f"column.{name}"}
        with pytest.raises(DataError, match=f"column {name}: 1 of 5 values have a code that the mapping does not know"):
            dataset_of(load_task("logistic-regression", parameters | others), mapped)


def test_a_cell_that_is_no_category_is_refused_although_unmapped_codes_are_missing() -> None:
    columns = read_columns({"column.sex": "female|male; missing; unmapped-is-missing"})
    with pytest.raises(DataError, match="1 of 2 values are none of the study's categories"):
        encode_columns(columns, Table.of({"sex": ["male", "X"]}).columns)
