"""Records from data frames and data sets of PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from private_learning.records import DataError, Examples, LazyExamples, load, records_of
from private_learning.records.datasets import from_dataset

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


def dictionaries(**more: Any) -> Wards:
    """As MONAI's data sets yield them, with whatever its transformations add."""
    return Wards([{"image": torch.full((1, 2, 2), row), "label": row % 2, "path": "miller"} | more for row in range(4)])


@pytest.mark.parametrize("lazy", [False, True])
def test_items_may_be_dictionaries(lazy: bool) -> None:
    records = records_of(dictionaries(), lazy=lazy)
    assert isinstance(records, LazyExamples if lazy else Examples)
    assert records.labels.tolist() == [0, 1, 0, 1]
    assert not records.named
    inputs = records.in_memory().inputs if isinstance(records, LazyExamples) else records.inputs
    assert inputs[:, 0, 0, 0].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("key", ["patient", "patient_id"])
def test_the_patient_of_a_dictionary_is_known_by_its_key(key: str) -> None:
    assert records_of(dictionaries(**{key: 17})).patients == ("17",) * 4


def test_keys_of_dictionaries_are_those_that_are_declared() -> None:
    items = Wards([{"t1": np.full((2, 2), row), "label": 7, "grade": row, "who": f"p{row}"} for row in range(3)])
    for records in (records_of(items, keys=("t1", "grade", "who")), load(items, keys=["t1", "grade", "who"])):
        assert isinstance(records, Examples)
        assert (records.labels.tolist(), records.patients) == ([0, 1, 2], ("p0", "p1", "p2"))
    both = dictionaries(patient=1, patient_id=2)
    assert records_of(both, keys=("image", "label", "patient_id")).patients == ("2",) * 4
    assert not records_of(both, keys=("image", "label")).named


@pytest.mark.parametrize(
    ("items", "keys", "words"),
    [
        ([{"x": 1, "y": 2}], None, r"not both 'image' and 'label' \('x', 'y'\): say which keys .* keys="),
        ([{"image": [1], "label": 2, "patient": 1, "patient_id": 2}], None, "both 'patient' and 'patient_id'"),
        ([{str(n): 1 for n in range(40)}], None, r"\(40 keys\)"),
        ([{"image": [1.0], "label": 2}, {"image": [1.0]}], None, "some items are no dictionaries with the keys"),
        ([{"image": [1.0], "label": 2}, ([1.0], 2)], None, "some items are no dictionaries with the keys"),
        ([([1.0], 2), {"image": [1.0], "label": 2}], None, "every item is"),
        ([{"image": [1.0], "label": 2}], ("image", "grade"), "no dictionaries with the keys 'image', 'grade'"),
        ([{"image": [1.0], "label": 2}], "image", "two or three are expected"),
        ([[{"image": [1.0], "label": 2}] * 2], None, "a list of dictionaries"),
    ],
    ids=["other names", "two patients", "many", "missing", "a pair", "no pair", "not there", "a word", "crops"],
)
def test_keys_that_are_not_clear_are_said(items: list[Any], keys: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        records_of(Wards(items), keys=keys)


class Augmented(Wards):
    """Another x, or another of everything, at each access."""

    def __init__(self, what: str, from_then: int = 0) -> None:
        super().__init__([(np.full((2, 2), row), row) for row in range(20)])
        self.what, self.from_then, self.asked = what, from_then, 0

    def __getitem__(self, index: int) -> Any:
        x, y = self.items[index]
        self.asked += 1
        if self.asked <= self.from_then:
            return x, y
        return (x + self.asked, y) if self.what == "x" else (x, y + self.asked)


@pytest.mark.parametrize("what", ["x", "y"])
def test_items_that_change_are_kept_once_in_memory_and_refused_on_demand(
    what: str, caplog: pytest.LogCaptureFixture
) -> None:
    records = records_of(Augmented(what), lazy=False)
    assert isinstance(records, Examples)
    assert "Every item is kept as it comes now and is not drawn again" in caplog.text
    with pytest.raises(DataError, match=r"change with every access.*public views"):
        records_of(Augmented(what), lazy=True)


def test_a_label_that_changes_later_never_meets_the_input_of_another_access() -> None:
    wards = Augmented("y", from_then=10**9)
    records = records_of(wards, lazy=True)
    assert isinstance(records, LazyExamples)
    assert records.read([3]).labels.tolist() == [3]
    wards.from_then = 0
    with pytest.raises(DataError, match="change with every access"):
        records.read([3])


def test_items_with_nan_are_the_same_item() -> None:
    assert len(records_of(Wards([(np.full(2, np.nan), np.nan)] * 3), lazy=True)) == 3


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB"])
def test_pictures_of_a_data_set_are_what_they_show(mode: str) -> None:
    # Two colours, and black and white: every mode holds them exactly.
    shades = np.where(np.arange(12).reshape(3, 4) % 3 == 0, 255, 0).astype(np.uint8)
    coloured = np.stack([shades, 255 - shades, shades], -1)
    image = Image.fromarray(coloured if mode in ("P", "RGB") else shades)
    image = image.quantize(2) if mode == "P" else image.convert(mode)
    records = records_of(Wards([(image, 1), (image, 0)]))
    assert isinstance(records, Examples)
    np.testing.assert_array_equal(records.inputs[1], np.moveaxis(coloured, -1, 0) if mode in ("P", "RGB") else shades)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "CMYK", "YCbCr", "HSV", "LAB"])
def test_pictures_of_a_data_set_that_would_have_to_be_converted_are_refused(mode: str) -> None:
    image = Image.new(mode, (4, 3))
    with pytest.raises(DataError, match=f"mode {mode}"):
        records_of(Wards([(image, 1), (image, 0)]))


def test_tensors_that_numpy_has_no_type_for() -> None:
    x = torch.tensor([1.5, -2.0], dtype=torch.bfloat16)
    records = records_of(Wards([(x, 1), (x, 0)]))
    assert isinstance(records, Examples)
    np.testing.assert_array_equal(records.inputs, [[1.5, -2.0]] * 2)
    for wrong in (torch.eye(2).to_sparse(), [1.0, [2.0, 3.0]]):
        with pytest.raises(DataError, match="no arrays"):
            records_of(Wards([(wrong, 1), (wrong, 0)]))


def test_on_demand_the_items_are_those_in_memory_whatever_the_order() -> None:
    items = [(np.full((2, 2), row, np.float32), row % 2, f"p{row}") for row in range(6)]
    in_memory, on_demand = from_dataset(Wards(items), lazy=False), from_dataset(Wards(items), lazy=True)
    assert isinstance(in_memory, Examples)
    assert isinstance(on_demand, LazyExamples)
    assert on_demand.read([4, 0]).inputs[:, 0, 0].tolist() == [4.0, 0.0]
    assert on_demand.labels.tolist() == in_memory.labels.tolist() == [0, 1] * 3
    assert on_demand.patients == in_memory.patients == tuple(f"p{row}" for row in range(6))


@pytest.mark.parametrize("keys", ["ab", ("x",), ("a", "b", "c", "d")])
def test_two_or_three_keys_are_expected(keys: Any) -> None:
    with pytest.raises(DataError, match="two or three are expected"):
        from_dataset(Wards([{"a": np.ones(2), "b": 0}]), None, keys)
