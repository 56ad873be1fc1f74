from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from study_protocol.wire.tensor_files import Arrays, TensorFile, encode_model, encode_pieces, file_order, runs
from study_protocol.wire.tensors import Array, Spec, TensorError, encode, metadata_in, spec_of

NAMES = st.text(min_size=1, max_size=9).filter(lambda name: name != "__metadata__")
ARRAYS = st.dictionaries(
    NAMES,
    st.sampled_from(["float32", "float64"]).flatmap(
        lambda dtype: hnp.arrays(
            dtype,
            hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
            elements=st.floats(-1e6, 1e6, width=32),
        )
    ),
    min_size=1,
    max_size=6,
)


def in_file_order(arrays: dict[str, Array], size: int) -> Any:
    tensors = Arrays(arrays)
    for name in file_order(tensors.spec):
        for _, start, stop in runs(name, arrays[name].size, size):
            yield name, start, tensors.piece(name, start, stop)


@given(ARRAYS, st.integers(1, 7))
def test_pieces_make_the_bytes_of_the_library(arrays: dict[str, Array], size: int) -> None:
    """Whatever the names, their order and the types."""
    assert b"".join(encode_pieces(spec_of(arrays), in_file_order(arrays, size))) == encode(arrays)


@pytest.mark.parametrize("order", [[1, 0, 2, 3], [0, 1, 2], [0, 1, 2, 3, 3], [0, 2, 3], [1, 2, 3], [2, 3, 0, 1]])
def test_pieces_out_of_their_order_are_noticed(order: list[int]) -> None:
    arrays: dict[str, Array] = {"a": np.ones(4, np.float32), "b": np.ones(4, np.float32)}
    whole = list(in_file_order(arrays, 2))
    with pytest.raises(ValueError, match=r"order|missing"):
        b"".join(encode_pieces(spec_of(arrays), [whole[index] for index in order]))


def test_nan_never_leaves() -> None:
    with pytest.raises(TensorError, match="a holds NaN"):
        b"".join(encode_pieces({"a": ((1,), "float32")}, [("a", 0, np.array([np.nan], np.float32))]))


@given(ARRAYS, st.dictionaries(st.text(max_size=9), st.text(max_size=30), max_size=4))
def test_texts_in_the_header_are_read_by_the_library_and_do_not_depend_on_their_order(
    arrays: dict[str, Array], texts: dict[str, str]
) -> None:
    data = encode_model(arrays, texts)
    assert data == encode_model(arrays, dict(reversed(texts.items())))
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        with safetensors.safe_open(file.name, "numpy") as opened:
            assert (opened.metadata() or {}) == texts
            assert {name: opened.get_tensor(name).tolist() for name in opened.keys()} == {  # noqa: SIM118
                name: array.tolist() for name, array in arrays.items()
            }
        assert TensorFile(file.fileno()).metadata == texts == metadata_in(data)


@pytest.mark.parametrize("texts", [{"a": 1}, {"a": None}, ["a"], "a", 0], ids=str)
def test_metadata_that_are_not_texts_are_refused(tmp_path: Path, texts: Any) -> None:
    path = written(tmp_path / "file", {"__metadata__": texts, "a": entry(0, 16, (4,))})
    with path.open("rb") as file, pytest.raises(TensorError, match="metadata"):
        TensorFile(file.fileno())
    with pytest.raises(TensorError, match="metadata"):
        metadata_in(path.read_bytes())


def test_metadata_longer_than_is_allowed_are_not_parsed(tmp_path: Path) -> None:
    arrays: dict[str, Array] = {"a": np.ones(4, np.float32)}
    path = tmp_path / "file"
    path.write_bytes(encode_model(arrays, {"wardround": "x" * 9000}))
    with path.open("rb") as file:
        with pytest.raises(TensorError, match="larger than"):
            TensorFile(file.fileno(), spec_of(arrays))
        assert TensorFile(file.fileno(), spec_of(arrays), longest_metadata=9000).spec == spec_of(arrays)


def written(path: Path, header: Any, numbers: bytes = bytes(16)) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + numbers)
    return path


def entry(begin: Any, end: Any, shape: Any = (2,), dtype: Any = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


@pytest.mark.parametrize(
    "header",
    [
        {"a": entry(0, 8), "b": entry(0, 8)},
        {"a": entry(0, 8), "b": entry(4, 12)},
        {"a": entry(0, 8)},
        {"b": entry(8, 16)},
        {"a": entry(0, 8), "b": entry(8, 24)},
        {"a": entry(0, 16), "b": entry(16, 16)},
        {"a": entry(8, 0), "b": entry(8, 16)},
        {"a": entry(0, 8), "b": entry(8, 16, [-2])},
        {"a": entry(0, 8), "b": entry(8, 16, [True, 2])},
        {"a": entry(0, 8), "b": entry(8, 16, [2.0])},
        {"a": entry(0, 8), "b": entry("8", 16)},
        {"a": entry(0, 8), "b": entry(8, 16, "2")},
        {"a": entry(0, 8), "b": entry(8, 16, dtype=7)},
        {"a": entry(0, 8), "b": {"dtype": "F32", "shape": [2], "data_offsets": [8]}},
        {"a": entry(0, 8), "b": {"dtype": "F32", "shape": [2]}},
        {"a": entry(0, 8), "b": [1]},
        [1, 2],
        pytest.param(b'{"a": {}, "a": {}}', id="one-name-twice"),
        pytest.param(b' {"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}', id="space-first"),
        pytest.param(b"\xff\xfe", id="no-text"),
        b"",
    ],
)
def test_a_header_that_two_could_read_in_two_ways_is_refused(tmp_path: Path, header: Any) -> None:
    spec: Spec = {"a": ((2,), "float32"), "b": ((2,), "float32")}
    with written(tmp_path / "x", header).open("rb") as file:
        for wanted in (spec, None):
            with pytest.raises(TensorError) as refused:
                TensorFile(file.fileno(), wanted)
            assert refused.value.code == "malformed"


def test_a_header_is_not_longer_than_its_file(tmp_path: Path) -> None:
    path = tmp_path / "x"
    for begin in (b"\xff" * 8, (1 << 40).to_bytes(8, "little"), b"\x20"):
        path.write_bytes(begin + b"{}")
        with path.open("rb") as file, pytest.raises(TensorError) as refused:
            TensorFile(file.fileno())
        assert refused.value.code == "malformed"


def test_half_precision_is_no_tensor_that_travels(tmp_path: Path) -> None:
    path = written(tmp_path / "x", {"a": entry(0, 16, [8], "F16")})
    for spec in (None, {"a": ((8,), "float32")}):
        with path.open("rb") as file, pytest.raises(TensorError) as refused:
            TensorFile(file.fileno(), spec)
        assert refused.value.code == "wrong-dtype"


def test_a_file_that_becomes_shorter_is_an_error_and_no_zeros(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(encode({"a": np.ones(100, np.float32)}))
    with path.open("r+b") as file:
        tensors = TensorFile(file.fileno())
        file.truncate(path.stat().st_size - 4)
        assert tensors.piece("a", 0, 99).sum() == 99
        with pytest.raises(TensorError, match="ends early"):
            tensors.piece("a", 99, 100)


@pytest.mark.posix
def test_a_system_without_preadv_reads_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.safetensors"
    arrays: dict[str, Array] = {"a": np.arange(6.0), "b": np.ones(2, np.float32)}
    path.write_bytes(encode(arrays))

    def read() -> list[list[float]]:
        with path.open("rb") as file:
            opened = TensorFile(file.fileno(), spec_of(arrays))
            return [opened.piece(name, *place).tolist() for name, place in (("b", (0, 2)), ("a", (1, 4)))]

    before = read()
    monkeypatch.delattr(os, "preadv")
    assert read() == before == [[1.0, 1.0], [1.0, 2.0, 3.0]]
    path.write_bytes(path.read_bytes()[:4])
    with pytest.raises(TensorError, match="not a safetensors file"):
        read()
