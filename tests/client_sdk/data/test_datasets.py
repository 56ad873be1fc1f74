"""Records from data frames and data sets of PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from client_sdk.data import DataError, Examples, Table, records_of

COLOUR = np.random.default_rng(1).integers(0, 256, (6, 4, 3), dtype=np.uint8)


class Wards(Dataset[Any]):
    """Items as given."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


def test_data_sets_of_pytorch_are_records() -> None:
    x, y = torch.arange(6.0).view(3, 2), torch.tensor([0, 1, 1])
    plain = records_of(TensorDataset(x, y))
    assert isinstance(plain, Examples)
    np.testing.assert_array_equal(plain.inputs, x.numpy())
    assert plain.labels.tolist() == [0, 1, 1]
    assert len(set(plain.patients)) == 3
    named = records_of(TensorDataset(x.requires_grad_(), y, torch.tensor([7, 8, 7])))
    assert named.patients == ("7", "8", "7")
    pictures = records_of(Wards([(Image.fromarray(COLOUR), 1), (Image.fromarray(COLOUR), np.int64(0))]))
    assert isinstance(pictures, Examples)
    np.testing.assert_array_equal(pictures.inputs[0], np.moveaxis(COLOUR, 2, 0))


def test_data_frames_and_records_pass_as_they_are() -> None:
    frame = pd.DataFrame({"x": [1, 2], "t": ["u", None]})
    table = records_of(frame)
    assert isinstance(table, Table)
    assert table.columns["t"].tolist() == ["u", None]
    assert records_of(table) is table


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter([(np.zeros(2), 0)])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (Stream(), "map-style"),
        (17, "map-style"),
        (Wards([np.zeros(2)]), r"\(x, y\)"),
        (Wards([(np.zeros(2), 0), (np.zeros(2), 0, "a")]), r"\(x, y\)"),
        (Wards([(np.zeros(2), 0), (np.zeros(3), 0)]), "one shape"),
        (Wards([(np.zeros(2), [0, 1]), (np.zeros(2), 0)]), "all y have one shape"),
        (Wards([]), r"\(x, y\)"),
    ],
    ids=["stream", "number", "no pair", "triple", "shapes differ", "two labels", "empty"],
)
def test_what_is_no_record_is_refused(data: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        records_of(data)


def test_y_may_be_an_array_as_long_as_all_have_one_shape() -> None:
    found = records_of(Wards([(np.zeros(2), torch.tensor([0, 1])), (np.zeros(2), np.array([1, 1]))]))
    assert isinstance(found, Examples)
    assert found.labels.tolist() == [[0, 1], [1, 1]]
    assert records_of(Wards([(np.zeros(2), 1), (np.zeros(2), np.array([0]))])).labels.tolist() == [1, 0]
