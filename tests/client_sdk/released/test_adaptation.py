"""A released model fitted to local patients: what is fitted, who is held out, and what the file says of itself."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm

from client_sdk.errors import ConfigurationError
from client_sdk.released.adaptation import (
    MIN_FOR_SLOPE,
    Adaptation,
    TooFewPatients,
    adapt,
    share_of,
)
from client_sdk.released.model import model_of
from private_learning.records import DataError, Records, Table
from study_protocol.study.averaging import average_models
from study_protocol.study.model_file import ModelMetadata
from study_protocol.wire.tensor_files import encode_model
from study_protocol.wire.tensors import TensorError, decode, metadata_in, spec_from_json
from tests.factories.released import TABLE, TASKS, write_model
from tests.factories.settings import settings

HELD_OUT = "wardround adapt: hold-out"


def released(tmp_path: Path, name: str = "logistic-regression", parameters: Any = TABLE) -> bytes:
    return write_model(tmp_path / "m.safetensors", name, parameters).read_bytes()


def columns(n: int, seed: int = 0) -> dict[str, Any]:
    draw = np.random.default_rng(seed)
    return {
        "age": draw.uniform(18, 90, n),
        "chol": draw.uniform(100, 400, n),
        "thal": draw.choice(["3", "6", "7"], n),
        "patient": [f"p{number}" for number in range(n)],
    }


def local(data: bytes, n: int = 1500, *, slope: float = 0.5, intercept: float = -0.8, seed: int = 0) -> Table:
    """Patients whose outcomes follow slope · logit + intercept of the model."""
    inputs = columns(n, seed)
    logit = logits(data, Table.of(inputs, patient_column="patient"))
    draw = np.random.default_rng(seed + 1)
    sick = (draw.uniform(size=n) < 1 / (1 + np.exp(-(slope * logit + intercept)))).astype(int)
    return Table.of({**inputs, "sick": sick}, patient_column="patient")


def logits(data: bytes, records: Records) -> np.ndarray:
    probability = model_of(data, "m")(records)[:, 1]
    return np.log(probability / (1 - probability))


def rows_of(records: Table, *, held_out: bool) -> Table:
    return records.take(
        np.flatnonzero([(share_of(HELD_OUT, patient) < 0.3) == held_out for patient in records.patients])
    )


def test_the_adapted_logit_is_the_line_of_a_logistic_regression_on_the_other_patients(tmp_path: Path) -> None:
    data = released(tmp_path)
    records = local(data)
    result = adapt(data, "m", records)
    train, test = rows_of(records, held_out=False), rows_of(records, held_out=True)
    assert result.patients == (len(train), len(test))
    events = train.numbers("sick").astype(int)
    reference = sm.Logit(events, sm.add_constant(logits(data, train))).fit(disp=False, tol=1e-14).params
    np.testing.assert_allclose(
        logits(result.data, test), reference[0] + reference[1] * logits(data, test), rtol=1e-4, atol=1e-5
    )
    assert result.gain > 2 * result.gain_error > 0
    assert result.before["roc_auc"] == pytest.approx(result.after["roc_auc"])
    assert result.after["log_loss"] == pytest.approx(result.before["log_loss"] - result.gain, rel=1e-9)


def test_the_file_names_the_released_one_and_says_that_it_stays(tmp_path: Path) -> None:
    data = released(tmp_path)
    result = adapt(data, "m", local(data))
    metadata = ModelMetadata.within(metadata_in(result.data))
    original = ModelMetadata.within(metadata_in(data))
    assert metadata is not None
    assert original is not None
    assert metadata.adapted_from == hashlib.sha256(data).hexdigest()
    assert metadata.adapted is not None
    assert "never sent" in metadata.adapted
    assert metadata.model_copy(update={"adapted_from": None, "adapted": None}) == original


def test_no_study_takes_an_adapted_model(tmp_path: Path) -> None:
    data = released(tmp_path)
    result = adapt(data, "m", local(data))
    metadata = ModelMetadata.within(metadata_in(result.data))
    assert metadata is not None
    chosen = settings(training={"task": "logistic-regression", "task_parameters": dict(TABLE)})
    with pytest.raises(TensorError, match="must stay there"):
        metadata.require("sepsis", chosen, 3)
    with pytest.raises(TensorError, match="must stay there"):
        average_models([result.data])
    with pytest.raises(TensorError, match="take the released one"):
        adapt(result.data, "m", local(data))


def test_who_is_held_out_depends_on_the_patient_alone(tmp_path: Path) -> None:
    data = released(tmp_path)
    records = local(data, 600)
    shares = [share_of(HELD_OUT, patient) for patient in records.patients]
    assert share_of(HELD_OUT, "p1") == share_of(HELD_OUT, "p1\u200b") != share_of(HELD_OUT, "p2")
    # Uniform: of 600 at 0.3 the standard deviation is 11.2. False alarm: 1 in 10,000.
    assert abs(sum(share < 0.3 for share in shares) - 180) < 44
    # Twice the rows: the same patients, whole, on the same sides.
    twice = records.take(np.concatenate([np.arange(600), np.arange(600)]))
    once, again = adapt(data, "m", records), adapt(data, "m", twice)
    assert once.patients == again.patients
    np.testing.assert_allclose(model_of(again.data, "m")(records), model_of(once.data, "m")(records), atol=1e-6)
    assert again.gain == pytest.approx(once.gain)
    assert again.gain_error == pytest.approx(once.gain_error)


def test_labels_of_held_out_patients_change_no_fit(tmp_path: Path) -> None:
    data = released(tmp_path)
    records = local(data, 800)
    flipped = np.array(
        [
            1 - label if share_of(HELD_OUT, patient) < 0.3 else label
            for label, patient in zip(records.numbers("sick"), records.patients, strict=True)
        ]
    )
    other = Table.of({**columns(800), "sick": flipped.astype(int)}, patient_column="patient")
    for head in (False, True):
        one, two = adapt(data, "m", records, head=head), adapt(data, "m", other, head=head)
        assert one.data == two.data
        assert one.gain != two.gain


def _with_events(data: bytes, train: int, test: int) -> Table:
    """So many sick patients on both sides, and ten times as many others."""
    inputs = columns(1200)
    sides = np.array([share_of(HELD_OUT, patient) < 0.3 for patient in inputs["patient"]])
    sick = np.zeros(1200, int)
    for side, count in ((False, train), (True, test)):
        sick[np.random.default_rng(1).permutation(np.flatnonzero(sides == side))[:count]] = 1
    return Table.of({**inputs, "sick": sick}, patient_column="patient")


def test_few_events_fit_the_intercept_alone(tmp_path: Path) -> None:
    data = released(tmp_path)
    result = adapt(data, "m", _with_events(data, MIN_FOR_SLOPE - 1, 30))
    assert result.fitted == "intercept"
    assert any("only the intercept was fitted" in note for note in result.notes)
    records = local(data, 50, seed=9)
    shift = logits(result.data, records) - logits(data, records)
    np.testing.assert_allclose(shift, shift[0], rtol=1e-3)
    assert adapt(data, "m", _with_events(data, MIN_FOR_SLOPE, 30)).fitted == "intercept and slope"


def test_a_slope_that_would_turn_the_order_around_stays_1(tmp_path: Path) -> None:
    data = released(tmp_path)
    result = adapt(data, "m", local(data, slope=-0.5))
    assert result.fitted == "intercept"
    assert any("does not order these patients" in note for note in result.notes)
    assert result.before["roc_auc"] == pytest.approx(result.after["roc_auc"])
    records = local(data, 50, seed=9)
    shift = logits(result.data, records) - logits(data, records)
    np.testing.assert_allclose(shift, shift[0], rtol=1e-3)


@pytest.mark.parametrize(
    ("train", "test", "words"),
    [(9, 30, "9 of class 1"), (0, 0, "one class only"), (30, 9, "the hold-out cannot judge the fit")],
)
def test_too_few_events_are_refused_with_their_number(tmp_path: Path, train: int, test: int, words: str) -> None:
    data = released(tmp_path)
    with pytest.raises(TooFewPatients, match=words):
        adapt(data, "m", _with_events(data, train, test))


def test_records_without_named_patients_are_refused(tmp_path: Path) -> None:
    data = released(tmp_path)
    records = replace(local(data, 100), named=False)
    with pytest.raises(DataError, match="--patient-column"):
        adapt(data, "m", records)
    with pytest.raises(ConfigurationError, match=r"between 0\.1 and 0\.9"):
        adapt(data, "m", local(data, 100), hold_out=1.0)


@pytest.mark.parametrize("name", ["bayesian-logistic-regression", "multi-label", "discrete-survival"])
def test_models_without_a_linear_last_layer_of_one_prediction_are_refused(tmp_path: Path, name: str) -> None:
    data = released(tmp_path, name, TASKS[name])
    with pytest.raises(ConfigurationError, match="adapted"):
        adapt(data, "m", local(released(tmp_path), 100))


def test_a_model_that_fits_already_may_get_worse_and_says_so(tmp_path: Path) -> None:
    """At slope 1 and intercept 0 a fit is noise: over seeds its gain is about 0, and often below."""
    data = released(tmp_path)
    gains = [adapt(data, "m", local(data, 300, slope=1.0, intercept=0.0, seed=seed)).gain for seed in range(12)]
    assert min(gains) < 0
    assert abs(float(np.mean(gains))) < 0.03


def test_the_head_learns_what_a_line_cannot(tmp_path: Path) -> None:
    """The local outcome depends on another column than the released model's."""
    data = released(tmp_path)
    inputs = columns(2000)
    draw = np.random.default_rng(5)
    sick = (draw.uniform(size=2000) < np.where(np.array(inputs["thal"]) == "7", 0.8, 0.2)).astype(int)
    records = Table.of({**inputs, "sick": sick}, patient_column="patient")
    line, head = adapt(data, "m", records), adapt(data, "m", records, head=True)
    assert head.fitted.startswith("the last layer, drawn to the released one with ridge ")
    assert auc(head) > auc(line) + 0.05
    assert head.gain > line.gain + 3 * head.gain_error


def auc(result: Adaptation) -> float:
    value = result.after["roc_auc"]
    assert value is not None
    return value


def test_several_classes_get_a_temperature_and_biases(tmp_path: Path) -> None:
    data = released(tmp_path, "mlp", TASKS["mlp"])
    inputs = columns(1500)
    model = model_of(data, "m")
    probability = model(Table.of(inputs, patient_column="patient"))
    true = 0.3 * np.log(probability) + np.array([0.0, 0.5, 1.0])
    labels = np.argmax(true + np.random.default_rng(3).gumbel(size=true.shape), axis=1)
    result = adapt(data, "m", Table.of({**inputs, "sick": labels}, patient_column="patient"))
    assert result.fitted == "temperature and a bias for each class"
    assert result.gain > 2 * result.gain_error
    slope = result.after["calibration_slope"]
    assert slope is not None
    assert abs(slope - 1) < 0.25
    # Hidden layers are the released ones.
    spec = spec_from_json({n: {"shape": list(a.shape), "dtype": a.dtype.name} for n, a in weights(model).items()})
    old, new = decode(data, spec, metadata=1 << 20), decode(result.data, spec, metadata=1 << 20)
    assert {name for name in spec if not np.array_equal(old[name], new[name])} == {"2.weight", "2.bias"}


def weights(model: Any) -> dict[str, np.ndarray]:
    return {name: value.detach().numpy() for name, value in model.module.named_parameters()}


def test_a_number_gets_an_intercept_and_a_slope(tmp_path: Path) -> None:
    data = released(tmp_path, "regression", TASKS["regression"])
    inputs = columns(900)
    model = model_of(data, "m")
    predicted = model(Table.of(inputs, patient_column="patient"))[:, 0]
    sick = np.clip(10 + 0.3 * predicted + np.random.default_rng(2).normal(size=900), 0, 30)
    result = adapt(data, "m", Table.of({**inputs, "sick": sick}, patient_column="patient"))
    assert result.fitted == "intercept and slope"
    assert result.gain > 2 * result.gain_error
    before, after = result.before["rmse"], result.after["rmse"]
    assert before is not None
    assert after is not None
    assert after < before


def test_a_file_of_unknown_origin_is_refused(tmp_path: Path) -> None:
    data = released(tmp_path)
    arrays = weights(model_of(data, "m"))
    with pytest.raises(TensorError, match="does not say"):
        adapt(encode_model(arrays, {}), "m", local(data, 100))
