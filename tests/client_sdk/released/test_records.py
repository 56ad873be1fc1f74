"""New records, whose labels are not known yet."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from client_sdk.released.records import new_records
from private_learning.records import DataError, Examples, Table, TableFormat

INPUTS = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize("data", [INPUTS, torch.tensor(INPUTS, requires_grad=True)], ids=["array", "tensor"])
def test_an_array_is_records_without_labels(data: object) -> None:
    records = new_records(data)
    assert isinstance(records, Examples)
    assert np.array_equal(np.asarray(records.inputs), INPUTS)
    assert np.asarray(records.labels).tolist() == [0, 0, 0]


def test_arrays_of_a_file_need_no_labels_and_may_name_patients(tmp_path: Path) -> None:
    path = tmp_path / "new.npz"
    np.savez(path, inputs=INPUTS, patients=np.array(["a", "b", "a"]))
    records = new_records(path)
    assert (len(records), records.patients) == (3, ("a", "b", "a"))
    np.savez(path, inputs=INPUTS)
    assert len(new_records(str(path)).patients) == 3
    np.savez(path, inputs=INPUTS, labels=np.array([1, 0, 1]))
    labelled = new_records(path)
    assert isinstance(labelled, Examples)
    assert np.asarray(labelled.labels).tolist() == [1, 0, 1]


def test_a_file_without_inputs_or_no_file_is_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "new.npz", pixels=INPUTS)
    with pytest.raises(DataError):
        new_records(tmp_path / "new.npz")
    with pytest.raises(FileNotFoundError):
        new_records(tmp_path / "nowhere.npz")


def test_tables_come_as_frames_mappings_and_files(tmp_path: Path) -> None:
    frame = pd.DataFrame({"age": [40.5, 61.0], "who": ["a", "b"]})
    path = tmp_path / "new.csv"
    path.write_text("age;who\n40,5;a\n61,0;b\n")
    declared = TableFormat("semicolon", decimal="comma")
    sources = ((frame, None), ({"age": [40.5, 61.0], "who": ["a", "b"]}, None), (path, declared))
    for data, table_format in sources:
        records = new_records(data, "who", table_format)
        assert isinstance(records, Table)
        assert records.patients == ("a", "b")
        assert records.numbers("age").tolist() == [40.5, 61]
