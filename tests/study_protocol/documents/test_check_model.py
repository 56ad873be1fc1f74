"""A model's file against its certificate: the file's digest, and what the file says of itself."""

from __future__ import annotations

import copy
import hashlib
from pathlib import Path

import numpy as np
import pytest

from study_protocol.documents.check_model import check_mean, check_model
from study_protocol.study.model_file import ModelMetadata
from study_protocol.wire.tensor_files import encode_model
from tests.factories.certificates import ONE, sealed
from tests.factories.settings import settings


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (("sepsis", 2), "is the model that round 2 released"),
        (("sepsis", 5), "it is of study sepsis, round 5"),
        (("stroke", 2), "it is of study stroke, round 2"),
        (None, "no safetensors file"),
    ],
    ids=["its own", "round", "study", "no model"],
)
def test_a_model_s_file_must_say_what_its_certificate_says(
    said: tuple[str, int] | None, found: str, tmp_path: Path
) -> None:
    """A coordinator could sign the hash of whatever file it wants."""
    chosen, path = settings(bayesian=True, max_steps=6), tmp_path / "model.safetensors"
    body = b"no safetensors file at all"
    if said is not None:
        header = ModelMetadata.of(said[0], chosen, said[1], (5, "ab" * 32)).header()
        body = encode_model({"bias": np.zeros(1, np.float32)}, header)
    path.write_bytes(body)
    value = copy.deepcopy(ONE.raw["certificate"])
    value["model"] = {"version": 2, "sha256": hashlib.sha256(body).hexdigest(), "bytes": len(body)}
    result = check_model(sealed(value).certificate, path)
    assert result.result == ("good" if said == ("sepsis", 2) else "bad")
    assert found.replace("no safetensors file", "not a safetensors file") in result.words


@pytest.mark.parametrize(
    ("study", "rounds", "result"),
    [("sepsis", (1, 2), "not known"), ("sepsis", (2, 5), "bad"), ("stroke", (1, 2), "bad")],
    ids=["counted", "later than the numbers", "another study's"],
)
def test_a_mean_of_released_models_is_told_from_a_wrong_file(
    study: str, rounds: tuple[int, ...], result: str, tmp_path: Path
) -> None:
    value, path = copy.deepcopy(ONE.raw["certificate"]), tmp_path / "model.safetensors"
    value["model"] = {"version": 2, "sha256": "ab" * 32, "bytes": 1}
    stated = sealed(value).certificate
    said = ModelMetadata.of(study, settings(bayesian=True, max_steps=6), max(rounds), (5, "ab" * 32))
    said = said.model_copy(update={"settings_sha256": stated.settings_sha256, "mean_of": rounds})
    path.write_bytes(encode_model({"bias": np.zeros(1, np.float32)}, said.header()))
    found = check_model(stated, path)
    assert found.result == result
    # Such a file is not shown to be good by what it says of itself.
    assert ("no certificate names its bytes" in found.words) == (result == "not known")


@pytest.mark.parametrize("rounds", [(), (1, 2)], ids=["of one round", "of a mean"])
def test_a_model_that_a_hospital_adapted_is_no_model_of_a_certificate(rounds: tuple[int, ...], tmp_path: Path) -> None:
    stated, path = ONE.certificate, tmp_path / "model.safetensors"
    metadata = ModelMetadata.of(stated.study, settings(bayesian=True, max_steps=6), 2, (5, "ab" * 32))
    adapted = {"adapted_from": "cd" * 32, "adapted": "intercept", "settings_sha256": stated.settings_sha256}
    header = metadata.model_copy(update=adapted | {"mean_of": rounds}).header()
    path.write_bytes(encode_model({"bias": np.zeros(1, np.float32)}, header))
    result = check_model(stated, path)
    assert result.result == "bad"
    assert "costs nothing beyond" not in result.words


def test_without_a_mean_there_is_nothing_to_compute() -> None:
    assert check_mean(ONE.certificate, [], None).result == "not known"
