"""A user's own pictures: CIFAR-10's files, folders, and features of a frozen network."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from private_learning.records import DataError
from research.tables.__main__ import main
from research.tables.pictures import cifar10, own_features

DRAW = np.random.default_rng(5)
NAMES = (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin")


def _written(folder: Path, each: int = 40) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Write batches record by record, as the data set's page describes them."""
    folder.mkdir(exist_ok=True)
    batches: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for name in NAMES:
        images, labels = DRAW.integers(0, 256, (each, 3, 32, 32), np.uint8), DRAW.permutation(each) % 10
        with (folder / name).open("wb") as file:
            for image, label in zip(images, labels, strict=True):
                file.write(bytes([int(label)]) + b"".join(image[channel].tobytes() for channel in range(3)))
        batches[name] = images, labels
    return batches


def test_binary_batches_are_read_in_their_order(tmp_path: Path) -> None:
    batches = _written(tmp_path)
    train, test = cifar10(tmp_path)
    assert train.inputs.shape == (200, 3, 32, 32)
    np.testing.assert_array_equal(train.inputs[40:80], batches["data_batch_2.bin"][0])
    np.testing.assert_array_equal(train.labels[160:], batches["data_batch_5.bin"][1])
    np.testing.assert_array_equal(test.inputs, batches["test_batch.bin"][0])
    assert own_features(tmp_path).inputs.shape == (200, 392)


def test_pickles_are_refused_without_reading_them(tmp_path: Path) -> None:
    class Touches:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return Path.touch, (str(tmp_path / "ran"),)

    (tmp_path / "data_batch_1").write_bytes(pickle.dumps(Touches()))
    with pytest.raises(DataError, match="cifar-10-binary"):
        own_features(tmp_path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "0 bytes"), (b"\0" * 3074, "3,074 bytes"), (b"\x0a" + b"\0" * 3072, "not 0 to 9"), (None, "missing")],
    ids=["empty", "half", "class", "gone"],
)
def test_damaged_batches_are_named(tmp_path: Path, content: bytes | None, message: str) -> None:
    _written(tmp_path, 2)
    (tmp_path / "data_batch_3.bin").unlink()
    if content is not None:
        (tmp_path / "data_batch_3.bin").write_bytes(content)
    with pytest.raises(DataError, match=f"data_batch_3.*{message}"):
        cifar10(tmp_path)


def _program(path: Path) -> Path:
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    ends = [
        helper.make_tensor_value_info(name, kind, sides)
        for name, sides in (("x", ["n", 3, 12, 10]), ("y", ["n", 3, 1, 1]))
    ]
    graph = helper.make_graph([helper.make_node("GlobalAveragePool", ["x"], ["y"])], "means", ends[:1], ends[1:])
    path.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
    )
    return path


def test_a_frozen_network_makes_the_features_of_a_folder(tmp_path: Path) -> None:
    for part in ("train", "test"):
        for name in ("left", "right"):
            (tmp_path / part / name).mkdir(parents=True)
            for place in range(3):
                pixels = DRAW.integers(0, 256, (12, 10, 3), np.uint8)
                Image.fromarray(pixels).save(tmp_path / part / name / f"{place}.png")
    found = own_features(tmp_path, _program(tmp_path / "net.onnx"))
    images = np.stack([np.asarray(Image.open(path)) for path in sorted((tmp_path / "train").rglob("*.png"))])
    means = torch.as_tensor(images).double().mean(dim=(1, 2))
    expected = (means / means.norm(dim=1, keepdim=True)).numpy()
    np.testing.assert_allclose(np.sort(found.inputs, axis=0), np.sort(expected, axis=0), rtol=1e-5)
    assert sorted(found.labels) == [0, 0, 0, 1, 1, 1]


def test_a_backbone_needs_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["III", "--clients", "100", "--data", "aptos", "--backbone", "net.onnx"]) == 2
    assert "--folder" in capsys.readouterr().err


@pytest.mark.slow
def test_the_line_of_cifar_10_is_measured_on_a_users_files(tmp_path: Path) -> None:
    _written(tmp_path / "bin", 400)
    results = tmp_path / "results"
    arguments = ["ICML", "--data", "cifar-10", "--folder", str(tmp_path / "bin"), "--results", str(results)]
    assert main([*arguments, "--seeds", "1"]) == 0
    assert len(list(results.glob("*.json"))) == 1
