"""A hospital trains on no model whose file claims another study, round, settings or past than it knows."""

from __future__ import annotations

from pathlib import Path

import pytest

from client_sdk.errors import BadAssignment
from study_protocol.study.model_file import ModelMetadata
from study_protocol.wire.tensor_files import encode_model
from study_protocol.wire.tensors import decode, metadata_in, spec_of
from tests.factories.hospitals import coordinator, hospital
from tests.factories.participations import join, run_until_forbidden, stop_after
from tests.factories.settings import settings


@pytest.mark.quick("entry", "nothing")
@pytest.mark.parametrize(
    ("lie", "words"),
    [
        ({"study": "flu"}, "another study"),
        ({"round": 2}, "another round"),
        ({"settings_sha256": "0" * 64}, "another settings_sha256"),
        ({"task": "mlp"}, "another task"),
        ({"ledger_sha256": "0" * 64}, "entry of the ledger"),
        ({"ledger_entries": 999}, "entry of the ledger"),
        (None, "does not say"),
    ],
    ids=["study", "round", "settings", "task", "hash", "entry", "nothing"],
)
def test_a_released_model_that_claims_something_else_is_refused(
    tmp_path: Path, lie: dict[str, object] | None, words: str
) -> None:
    other = coordinator(settings(max_steps=6))
    here = hospital(other, tmp_path)
    stop_after(other, 1)
    run_until_forbidden(here)
    other.meddle = None
    said = ModelMetadata.within(metadata_in(other.models[1]))
    assert said is not None
    header = {} if lie is None else said.model_copy(update=lie).header()
    other.models[1] = encode_model(decode(other.models[1], spec_of(other.initial)), header)
    with pytest.raises(BadAssignment, match=words):
        join(here)
    assert other.updates[2] == {}
    assert [refusal.code for refusal in other.refusals[2].values()] == ["bad-assignment"]


def test_an_initial_model_of_another_study_is_refused(tmp_path: Path) -> None:
    other = coordinator()
    here = hospital(other, tmp_path)
    other.models[0] = encode_model(other.initial, ModelMetadata.of("flu", other.settings, 0).header())
    with pytest.raises(BadAssignment, match="another study"):
        join(here)
