"""A coordinator that serves, or certifies, other weights under a good header, over real HTTP with four hospitals."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load, save
from sqlalchemy import text

from client_sdk.errors import BadAssignment, EvidenceKept, NotTrusted
from client_sdk.study.audit import audited
from client_sdk.study.participation import Outcome
from client_sdk.study.result import study_model
from server.db.blobs import models_of
from server.db.rows import find_study
from server.db.session import Transaction
from server.db.tables import ModelRow
from server.services.rounds import assign
from study_protocol.documents import check
from study_protocol.documents.check_model import check_model
from study_protocol.study.model_file import ModelMetadata
from study_protocol.study.model_info import ModelInfo
from study_protocol.study.settings import StudySettings
from study_protocol.wire.tensors import TensorError, metadata_in
from tests.factories.asking import operator
from tests.factories.live_coordinator import Live, live
from tests.factories.lying_coordinator import Ward, ledger_of, started, together, working
from tests.factories.settings import settings

pytestmark = pytest.mark.timeout(240)
CHOSEN = settings(max_steps=3, expected_clients=4.0)
MOVING = settings(max_steps=3, adaptive_clip={"quantile": 0.5, "rate": 0.2}, noise_multiplier=0.75)
NAMES = ("mercy", "grace", "hope", "faith")


@pytest.fixture
def here(tmp_path: Path, database_url: str) -> Iterator[Live]:
    with live(tmp_path / "coordinator", database_url=database_url) as running:
        yield running


@pytest.fixture
def dishonest(monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator does not look whether its own database is what it signed."""
    for module in ("rounds.assign", "rounds.release", "certificates", "views", "studies.models"):
        for name in ("require_released", "require_base"):
            monkeypatch.setattr(f"server.services.{module}.{name}", lambda *_: None, raising=False)


def swapped(here: Live, version: int) -> ModelInfo:
    """Other weights under the same header: study, settings, round and ledger entry are all true."""
    blobs = here.coordinator.blobs

    def work(tx: Transaction) -> ModelInfo:
        row = tx.session.get_one(ModelRow, (find_study(tx, "sepsis").id, version))
        file = blobs.open(models_of("sepsis"), row.sha256)
        assert file is not None
        with file:
            body = os.read(file.descriptor, file.bytes)
        said = ModelMetadata.within(metadata_in(body))
        weights = {name: array + 1 for name, array in load(body).items()}
        blob = blobs.write(models_of("sepsis"), save(weights, None if said is None else said.header()))
        row.sha256, row.bytes = blob.sha256, blob.bytes
        return ModelInfo(version=version, sha256=blob.sha256, bytes=blob.bytes)

    return here.coordinator.database.write("swap", work)


def one_round(here: Live, folder: Path, chosen: StudySettings = CHOSEN) -> list[Ward]:
    wards = started(here, folder, chosen, *NAMES)
    assert together(*(lambda ward=ward: ward.join(until=1) for ward in wards)) == [None] * 4
    return wards


def refused(ward: Ward, words: str) -> None:
    """It stops with a proof, and stays away until a person has looked at it."""
    with pytest.raises(BadAssignment, match=words):
        ward.join(until=2)
    proof = json.loads(ward.proof.read_bytes())
    # The coordinator's own words, whole: what was assigned, with its signature.
    shown = proof["round"]["assignment"]["model"]
    named = [entry["body"]["sha256"] for entry in proof["seen"]["entries"] if entry["kind"] == "released"]
    assert shown["sha256"] not in named
    with pytest.raises(EvidenceKept):
        ward.join(until=2)


@pytest.mark.quick("sqlite")
@pytest.mark.usefixtures("dishonest")
def test_hospitals_begin_no_round_with_a_model_that_was_not_released(here: Live, tmp_path: Path) -> None:
    wards = one_round(here, tmp_path)
    # The worker releases round 1; before round 2 begins, the file is another one.
    here.work()
    swapped(here, 1)
    for ward in wards:
        refused(ward, "names that of round 1, another file")


@pytest.mark.slow
@pytest.mark.usefixtures("dishonest")
def test_nor_with_another_initial_model(here: Live, tmp_path: Path) -> None:
    wards = started(here, tmp_path, CHOSEN, *NAMES)
    swapped(here, 0)
    for ward in wards:
        refused(ward, "names that of round 0, another file")


@pytest.mark.slow
@pytest.mark.usefixtures("dishonest")
def test_one_hospital_that_is_given_a_model_of_its_own_finds_out(
    here: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wards = one_round(here, tmp_path)
    here.work()
    other, honest = swapped(here, 1), assign._signed

    def signed(coordinator: Any, prepared: Any, client: str) -> Any:
        body = prepared.body
        if client != "hope":
            entries = ledger_of(here)
            named = next(entry for entry in entries if entry.kind == "released" and entry.round == 1)
            true = ModelInfo(version=1, sha256=named.body["sha256"], bytes=named.body["bytes"])
            body = body.model_copy(update={"model": true})
        return honest(
            coordinator, assign.Prepared(prepared.round, prepared.head_sha256, body, prepared.session), client
        )

    monkeypatch.setattr(assign, "_signed", signed)
    assert other.version == 1
    refused(next(ward for ward in wards if ward.name == "hope"), "another file")
    # The others are served the true digest; the file that they fetch by it is not there any more.
    with pytest.raises(NotTrusted, match="the model is not the one that the assignment names"):
        wards[0].join(until=2)


@pytest.mark.slow
@pytest.mark.usefixtures("dishonest")
def test_nor_with_another_clip_norm_than_the_ledger_names(here: Live, tmp_path: Path) -> None:
    wards = one_round(here, tmp_path, MOVING)
    here.work()
    with here.coordinator.database.engine.begin() as connection:
        connection.execute(text("UPDATE models SET clip_norm = clip_norm * 1.01 WHERE version = 1"))
    with pytest.raises(BadAssignment, match="another file or clip norm"):
        wards[0].join(until=2)
    assert wards[0].proof.exists()


@pytest.mark.slow
def test_nor_does_an_honest_coordinator_go_on_with_it(here: Live, tmp_path: Path) -> None:
    wards = one_round(here, tmp_path, MOVING)
    here.work()
    with here.coordinator.database.engine.begin() as connection:
        connection.execute(text("UPDATE models SET clip_norm = NULL WHERE version = 1"))
    together(*(lambda ward=ward: ward.join(until=2) for ward in wards))
    assert not any(ward.proof.exists() for ward in wards)
    here.work()
    assert here.operator("GET", "/v1/studies/sepsis").json()["stop_reason"] == "database-differs"


@pytest.mark.slow
def test_an_honest_coordinator_whose_database_was_changed_stops_by_itself(here: Live, tmp_path: Path) -> None:
    wards = one_round(here, tmp_path)
    here.work()
    swapped(here, 1)
    answers = together(*(lambda ward=ward: ward.join(until=2) for ward in wards))
    assert not any(ward.proof.exists() for ward in wards)
    here.work()
    assert here.operator("GET", "/v1/studies/sepsis").json()["stop_reason"] == "database-differs", answers


@pytest.mark.slow
@pytest.mark.usefixtures("dishonest")
def test_no_certificate_is_good_for_weights_that_no_round_released(here: Live, tmp_path: Path) -> None:
    wards = started(here, tmp_path, CHOSEN, *NAMES)
    with working(here):
        outcomes = together(*(ward.join for ward in wards))
    assert all(isinstance(outcome, Outcome) for outcome in outcomes), outcomes
    entries = ledger_of(here)
    assert audited("sepsis", entries).names_models
    honest = checks(here, tmp_path, 3)
    assert set(honest.values()) == {"good"}, honest
    swapped(here, 3)
    found = checks(here, tmp_path, 3)
    assert found["model"] == "bad", found
    # Nor does a reader take the file for the study's result.
    with operator(here) as client, pytest.raises(TensorError, match="not the one that the study's ledger names"):
        study_model(client, "sepsis")
    # The numbers are still those of the study.
    assert {result for what, result in found.items() if what.startswith("ε")} == {"good"}


def checks(here: Live, folder: Path, version: int) -> dict[str, str]:
    document = check.open_certificate(here.operator("GET", "/v1/studies/sepsis/certificate").content)
    path = folder / "model.safetensors"
    path.write_bytes(here.operator("GET", f"/v1/studies/sepsis/models/{version}").content)
    found = [
        check.check_signature(document, here.coordinator.signer.public_key, "the key", is_confirmed=True),
        check_model(document.certificate, path),
        *check.check_ledger(document.certificate, ledger_of(here)),
    ]
    # The worst of each name.
    return {one.subject: one.result for one in sorted(found, key=lambda one: one.result, reverse=True)}
