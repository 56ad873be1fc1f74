"""The mean of released models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load

from client_sdk.protocol.study.averaging import average_models
from client_sdk.protocol.study.model_file import ModelMetadata
from client_sdk.protocol.wire.tensor_files import encode_model
from client_sdk.protocol.wire.tensors import TensorError, encode, metadata_in
from tests.factories.settings import settings


def _model(value: float, metadata: dict[str, str] | None = None) -> bytes:
    weight = np.array([[value, 2 * value]], dtype=np.float32)
    return encode_model({"weight": weight, "bias": np.array([value])}, metadata or {})


def test_every_parameter_is_the_mean_of_files_and_bytes(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(_model(1.0))
    averaged = load(average_models([path, _model(3.0), _model(5.0)]))
    np.testing.assert_array_equal(averaged["weight"], np.array([[3.0, 6.0]], dtype=np.float32))
    assert averaged["weight"].dtype == np.float32
    assert averaged["bias"].dtype == np.float64


def test_one_model_is_its_own_mean() -> None:
    assert average_models([_model(0.1)]) == _model(0.1)


def test_the_order_of_the_models_does_not_matter() -> None:
    models = [_model(value) for value in (0.1, 0.2, 0.7)]
    assert average_models(models) == average_models(models[::-1])


def _released(round: int, study: str = "sepsis", scheme: str = "parallel") -> bytes:
    said = ModelMetadata.of(study, settings(scheme), round, (2 * round, "ab" * 32))
    return _model(float(round), said.header())


def test_the_mean_says_of_which_rounds_it_is() -> None:
    mean = average_models([_released(3), _released(1)])
    said = ModelMetadata.within(metadata_in(mean))
    assert said is not None
    assert (said.study, said.round, said.mean_of) == ("sepsis", 3, (1, 3))
    with pytest.raises(TensorError, match="mean of several models"):
        said.require("sepsis", settings("parallel"), 3)
    assert average_models([mean]) == mean
    # Nor is it of a newer round than it says.
    header = said.header() | {"mean_of": "[1,4]"}
    with pytest.raises(TensorError, match="damaged"):
        ModelMetadata.within(header)
    with pytest.raises(TensorError, match="a mean already"):
        average_models([mean, _released(2)])


def test_one_released_model_stays_what_it_is() -> None:
    assert average_models([_released(3)]) == _released(3)


def test_models_of_other_studies_or_of_none_are_refused() -> None:
    # Of another study with equal settings, too: the mean costs the ε of both, and its file would name one.
    for other in (_released(1, scheme="sequential"), _released(1, study="stroke"), _model(1.0)):
        with pytest.raises(TensorError, match="not all of one study"):
            average_models([_released(2), other])


@pytest.mark.parametrize(
    ("other", "code"),
    [
        (b"", "malformed"),
        (b"no model at all", "malformed"),
        (encode({"weight": np.zeros(3, dtype=np.float32)}), "wrong-shape"),
        (_model(1.0).replace(np.float32(2).tobytes(), np.float32("nan").tobytes()), "not-finite"),
    ],
    ids=["empty", "text", "another study's", "not a number"],
)
def test_what_cannot_be_averaged_is_refused(other: bytes, code: str) -> None:
    with pytest.raises(TensorError) as caught:
        average_models([_model(1.0), other])
    assert caught.value.code == code


def test_no_model_has_no_mean(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one"):
        average_models([])
    with pytest.raises(FileNotFoundError):
        average_models([tmp_path / "missing"])
