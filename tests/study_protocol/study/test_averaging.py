"""The mean of released models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load

from study_protocol.study import averaging
from study_protocol.study.averaging import average_models, averaged_rounds
from study_protocol.study.model_file import ModelMetadata
from study_protocol.study.training import Averaging
from study_protocol.wire.tensor_files import encode_model
from study_protocol.wire.tensors import TensorError, encode, metadata_in
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


def _released(round: int, study: str = "sepsis", scheme: str = "parallel", entry: int | None = None) -> bytes:
    said = ModelMetadata.of(study, settings(scheme), round, (2 * round if entry is None else entry, "ab" * 32))
    return _model(float(round), said.header())


def test_the_mean_has_one_sequence_of_sums_whatever_the_order_and_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(4)
    arrays = {number: draw.normal(size=(9, 1)) * 10.0 ** draw.integers(-9, 9, size=(9, 1)) for number in (1, 3, 4, 7)}
    files = [
        encode_model(
            {"w": array, "b": array[:2].astype(np.float32)},
            ModelMetadata.of("sepsis", settings("parallel"), number, (2 * number, "ab" * 32)).header(),
        )
        for number, array in arrays.items()
    ]
    # By hand, one number at a time: IEEE products and sums in the order of rounds.
    weights = [0.1, 0.2, 0.3, 0.4]
    wanted = list[float]()
    for place in range(9):
        total = 0.0
        for weight, array in zip(weights, arrays.values(), strict=True):
            total += float(array[place, 0]) * weight
        wanted.append(total)
    whole = average_models(files, weights)
    assert load(whole)["w"].ravel().tolist() == wanted
    assert average_models(files[::-1], weights[::-1]) == whole
    monkeypatch.setattr(averaging, "_BLOCK", 1)
    assert average_models(files, weights) == whole


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


def test_two_runs_of_one_study_s_name_are_not_one_study() -> None:
    # A ledger only grows: a later round was settled by a later entry, and each round by one.
    for other in (_released(2), _released(2, entry=9), _released(3, entry=4), _released(1, entry=5)):
        with pytest.raises(TensorError, match="not all of one study"):
            average_models([_released(2), other])


@pytest.mark.parametrize(
    "wrong",
    [{"mean_of": "[4,1]"}, {"mean_of": "[4,4]"}, {"mean_weights": "[0.5,1.0]"}, {"mean_weights": "[0.1,0.2]"}],
    ids=["not in order", "twice", "more than all", "less than all"],
)
def test_a_file_that_says_what_no_mean_is_is_damaged(wrong: dict[str, str]) -> None:
    mean = average_models([_released(4), _released(1)], [3.0, 1.0])
    header = {"mean_of": "[1,4]", "mean_weights": "[0.25,0.75]"}
    said = metadata_in(mean)
    assert {name: said[name] for name in header} == header
    with pytest.raises(TensorError, match="damaged"):
        ModelMetadata.within({**said, **wrong})


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


@pytest.mark.parametrize(
    ("share", "released", "kept"),
    [
        (0.5, range(1, 31), range(16, 31)),
        (0.5, range(1, 32), range(16, 32)),
        # 0.1 · 30 is 3.0000000000000004 in floating point.
        (0.1, range(1, 31), range(28, 31)),
        (1.0, (2, 3, 7), (2, 3, 7)),
        (0.01, (2, 3, 7), (7,)),
        (1e-12, (2, 3, 7), (7,)),
        (0.5, (), ()),
    ],
    ids=["even", "odd", "a tenth", "all", "the newest", "next to none", "none"],
)
def test_a_tail_is_the_newest_of_what_was_released(share: float, released: Sequence[int], kept: Sequence[int]) -> None:
    found = averaged_rounds(Averaging(name="tail", share=share), list(released))
    assert found == {number: pytest.approx(1 / len(kept)) for number in kept}


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.9, 0.99])
def test_exponential_weights_are_those_of_the_running_mean(decay: float) -> None:
    # m ← decay · m + (1 − decay) · w, divided by 1 − decay^R at the end (Kingma and Ba 2015, §3, of a first moment).
    released = [1, 2, 5, 6, 7, 9]
    found = averaged_rounds(Averaging(name="exponential", decay=decay), released)
    values, running = np.random.default_rng(1).normal(size=10), 0.0
    for number in released:
        running = decay * running + (1 - decay) * values[number]
    wanted = running / (1 - decay ** len(released))
    assert sum(weight * values[number] for number, weight in found.items()) == pytest.approx(wanted, rel=1e-12)
    assert sum(found.values()) == pytest.approx(1)


def test_rounds_that_hardly_count_are_not_fetched() -> None:
    found = averaged_rounds(Averaging(name="exponential", decay=0.5), range(1, 1001))
    # 2⁻²⁶ is above 10⁻⁸, 2⁻²⁷ is not.
    assert list(found) == list(range(974, 1001))


def test_a_weighted_mean_says_what_every_round_counts() -> None:
    mean = average_models([_released(4), _released(1)], [3.0, 1.0])
    np.testing.assert_array_equal(load(mean)["bias"], [0.75 * 4 + 0.25 * 1])
    said = ModelMetadata.within(metadata_in(mean))
    assert said is not None
    assert (said.round, said.mean_of, said.mean_weights) == (4, (1, 4), (0.25, 0.75))
    assert average_models([_released(4), _released(1)], [2.0, 2.0]) == average_models([_released(4), _released(1)])
    with pytest.raises(TensorError, match="damaged"):
        ModelMetadata.within(said.header() | {"mean_weights": "[1.0]"})


@pytest.mark.parametrize("weights", [[1.0], [1.0, 0.0], [1.0, float("nan")], [1.0, float("inf")]])
def test_weights_that_are_none_are_refused(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="one weight above 0"):
        average_models([_model(1.0), _model(2.0)], weights)
