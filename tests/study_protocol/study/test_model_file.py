"""What a model's file says of itself: the same texts for the same study, and nothing believed that is another's."""

from __future__ import annotations

import json
from typing import Any

import pytest

from study_protocol.study.model_file import LONGEST_METADATA, ModelMetadata
from study_protocol.study.settings import StudySettings
from study_protocol.study.training import LONGEST_PARAMETERS
from study_protocol.wire.tensor_files import encode_model
from study_protocol.wire.tensors import TensorError, decode, encoded_size_limit, metadata_in, spec_of
from tests.factories.hospital_double import MODEL
from tests.factories.settings import settings

HEAD = (7, "ab" * 32)


def said(**changes: Any) -> ModelMetadata:
    return ModelMetadata.of("sepsis", settings(**changes), 3, HEAD)


def test_the_header_holds_what_a_reader_needs_as_plain_or_canonical_texts() -> None:
    parameters = {"label": "ill", "column.rate": "0..200; missing=70", "column.Age": "18..90", "classes": 2}
    header = said(training={"task_parameters": parameters}).header()
    assert header["wardround"] == "1"
    assert (header["study"], header["round"]) == ("sepsis", "3")
    assert json.loads(header["task_parameters"]) == parameters
    # In the order of the inputs, which is that of the names' characters.
    assert [column["name"] for column in json.loads(header["columns"])] == ["Age", "rate"]
    assert header["columns"].startswith('[{"encoding":"18..90","name":"Age"}')
    assert header["settings_sha256"] == settings(training={"task_parameters": parameters}).digest()
    assert (header["ledger_entries"], header["ledger_sha256"]) == ("7", "ab" * 32)


def test_what_was_written_is_read_again() -> None:
    assert ModelMetadata.within(said().header()) == said()
    assert ModelMetadata.within({"format": "pt"}) is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"wardround": "2"}, "later version"),
        ({"round": "x"}, "damaged"),
        ({"round": "-1"}, "damaged"),
        ({"columns": "{}"}, "damaged"),
        ({"columns": '[{"name":"age"}]'}, "damaged"),
        ({"settings_sha256": "00"}, "damaged"),
        ({"more": "1"}, "damaged"),
        ({"task_parameters": '{"a":1,"a":2}'}, "damaged"),
    ],
    ids=["version", "round", "negative", "no columns", "half a column", "digest", "unknown", "twice"],
)
def test_texts_that_are_none_are_refused_with_a_way_out(changes: dict[str, str], words: str) -> None:
    with pytest.raises(TensorError, match=words) as error:
        ModelMetadata.within(said().header() | changes)
    assert error.value.code == "wrong-metadata"


@pytest.mark.parametrize("missing", sorted(set(said().header()) - {"wardround"}))
def test_no_text_may_lack(missing: str) -> None:
    header = said().header()
    del header[missing]
    with pytest.raises(TensorError, match="damaged"):
        ModelMetadata.within(header)


@pytest.mark.parametrize(
    ("study", "chosen", "round", "what"),
    [
        ("flu", settings(), 3, "study"),
        ("sepsis", settings(), 2, "round"),
        ("sepsis", settings(max_steps=19), 3, "settings_sha256"),
    ],
)
def test_another_study_round_or_settings_is_named(study: str, chosen: StudySettings, round: int, what: str) -> None:
    said().require("sepsis", settings(), 3)
    with pytest.raises(TensorError, match=f"another {what}"):
        said().require(study, chosen, round)


def test_parameters_that_the_digest_does_not_cover_are_compared() -> None:
    forged = said().model_copy(update={"task_parameters": {"label": "other"}})
    with pytest.raises(TensorError, match="another task_parameters"):
        forged.require("sepsis", settings(), 3)


def test_an_adapted_model_says_so_and_is_of_no_round() -> None:
    adapted = said().model_copy(update={"adapted_from": "cd" * 32, "adapted": "intercept, stays at home"})
    assert ModelMetadata.within(adapted.header()) == adapted
    assert not {"adapted_from", "adapted"} & set(said().header())
    with pytest.raises(TensorError, match="adapted to a hospital"):
        adapted.require("sepsis", settings(), 3)
    half = {name: text for name, text in adapted.header().items() if name != "adapted"}
    with pytest.raises(TensorError, match="damaged"):
        ModelMetadata.within(half)


def test_an_initial_model_names_no_entry() -> None:
    ModelMetadata.of("sepsis", settings(), 0).require("sepsis", settings(), 0)
    with pytest.raises(TensorError, match="names an entry"):
        ModelMetadata.of("sepsis", settings(), 0, HEAD).require("sepsis", settings(), 0)


def test_the_largest_parameters_fit_into_the_header_that_readers_accept() -> None:
    # Quotes and backslashes are doubled once in the parameters' own JSON and once more in the header's.
    room = LONGEST_PARAMETERS // 1024 - 40
    worst = {f"column.{k:04}": '"' * (room // 2) for k in range(1024)}
    found = ModelMetadata.of("s" * 63, settings(training={"task_parameters": worst}), 2**31 - 1, (2**31 - 1, "f" * 64))
    data = encode_model(MODEL, found.header())
    assert len(data) <= encoded_size_limit(spec_of(MODEL), metadata=LONGEST_METADATA)
    assert decode(data, spec_of(MODEL), metadata=LONGEST_METADATA).keys() == MODEL.keys()
    assert ModelMetadata.within(metadata_in(data)) == found
    with pytest.raises(ValueError, match="task_parameters have at most"):
        settings(training={"task_parameters": {"a": "x" * LONGEST_PARAMETERS}})


@pytest.mark.parametrize("trainable", ["head", ("4.*", "2.bias")], ids=["head", "patterns"])
def test_a_trained_part_and_its_backbone_stand_in_the_header_and_are_compared(trainable: Any) -> None:
    part = {"trainable": trainable, "backbone": {"sha256": "ab" * 32}}
    chosen = settings(training=part)
    said = ModelMetadata.of("sepsis", chosen, 0)
    assert ModelMetadata.within(said.header()) == said
    said.require("sepsis", chosen, 0)
    for change in ({"trainable": "lora:2"}, {"backbone_sha256": "cd" * 32}, {"backbone_sha256": None}):
        (name,) = change
        with pytest.raises(TensorError, match=f"of another {name}"):
            said.model_copy(update=change).require("sepsis", chosen, 0)
    whole = ModelMetadata.of("sepsis", settings(), 0).header()
    assert not {"trainable", "backbone_sha256"} & set(whole)
