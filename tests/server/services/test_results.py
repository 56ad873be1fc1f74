"""The result that a coordinator signs: the mean of released models, the same bytes wherever it is computed."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete

from accounting.budget.ledger import Entry
from server.db import rows
from server.db.blobs import models_of
from server.db.session import Transaction
from server.db.tables import ModelRow
from server.domain.errors import Rejected
from server.services import results, views
from server.services.coordinator import Coordinator
from server.services.ledger_pages import ledger_page
from server.services.results import locate_result
from study_protocol.documents import check
from study_protocol.documents.check_model import check_mean, check_model
from study_protocol.study.averaging import average_models, mean_file
from tests.factories.certificates import sealed
from tests.factories.hospital_double import Hospital
from tests.factories.studies import open_study
from tests.server.services.test_certificates import opened, train

HALF: dict[str, Any] = {"training": {"optimiser": {"averaging": {"name": "tail", "share": 0.5}}}}
FALLING: dict[str, Any] = {"training": {"optimiser": {"averaging": {"name": "exponential", "decay": 0.7}}}}


def averaging(coordinator: Coordinator, chosen: dict[str, Any], *rounds: int) -> list[Hospital]:
    hospitals = open_study(coordinator, **chosen)
    train(coordinator, hospitals, *rounds)
    return hospitals


def read(coordinator: Coordinator, version: int | None = None) -> bytes:
    located = (
        locate_result(coordinator, "sepsis") if version is None else views.locate_model(coordinator, "sepsis", version)
    )
    with located.open() as file:
        return file.read(0, 1 << 20)


def ledger(coordinator: Coordinator) -> list[Entry]:
    return [Entry.from_dict(one.model_dump(mode="json")) for one in ledger_page(coordinator, "sepsis").entries]


@pytest.mark.quick("sqlite-tail")
@pytest.mark.parametrize(("chosen", "rounds"), [(HALF, [2, 3]), (FALLING, [1, 2, 3])], ids=["tail", "exponential"])
def test_file_certificate_and_released_models_have_one_digest(
    coordinator: Coordinator, chosen: dict[str, Any], rounds: list[int], tmp_path: Path
) -> None:
    averaging(coordinator, chosen, 1, 2, 3)
    stated = opened(coordinator).certificate
    assert stated.result is not None
    assert (stated.result.rounds, stated.round) == (rounds, 3)
    body = read(coordinator)
    # As a reader makes it, without the coordinator.
    assert body == average_models([read(coordinator, number) for number in rounds], stated.result.weights or None)
    released = [tmp_path / f"{number}.safetensors" for number in range(4)]
    for number, path in enumerate(released):
        path.write_bytes(read(coordinator, number))
    (mean := tmp_path / "mean.safetensors").write_bytes(body)
    assert check_model(stated, mean).result == "good"
    assert check_model(stated, released[3]).result == "good"
    entries = ledger(coordinator)
    assert {one.result for one in check.check_ledger(stated, entries)} == {"good"}
    for known in (entries, None):
        assert check_mean(stated, released, known).result == "good"
    assert check_mean(stated, released[:3], entries).result == "not known"
    mean.write_bytes(body[:-1] + bytes([body[-1] ^ 1]))
    assert check_model(stated, mean).result == "bad"
    # The certificate of one round is about its model.
    assert opened(coordinator, 2).certificate.result is None


@pytest.mark.quick("sqlite")
def test_a_coordinator_that_signs_another_mean_is_found(coordinator: Coordinator, tmp_path: Path) -> None:
    averaging(coordinator, HALF, 1, 2, 3)
    entries, honest = ledger(coordinator), opened(coordinator)
    files = [tmp_path / f"{number}.safetensors" for number in (1, 2, 3)]
    for number, path in enumerate(files, start=1):
        path.write_bytes(read(coordinator, number))

    def signed(**changed: Any) -> check.OpenedCertificate:
        value = json.loads(json.dumps(honest.raw["certificate"]))
        return sealed({**value, "result": {**value["result"], **changed}})

    other = signed(sha256="ab" * 32).certificate
    assert check_mean(other, files, entries).result == "bad"
    # Nor can it leave a round out: which rounds count follows from settings and ledger.
    all_of_it = signed(rounds=[1, 2, 3]).certificate
    found = {one.subject: one for one in check.check_ledger(all_of_it, [*entries])}
    assert found["everything else"].result == "bad"
    assert check_mean(all_of_it, files, None).result == "bad"
    # A released model in a file's place that the ledger does not name.
    files[1].write_bytes(files[1].read_bytes()[:-1] + b"\x01")
    assert check_mean(honest.certificate, files, entries).result == "bad"


@pytest.mark.slow
def test_one_released_model_none_and_no_averaging_have_no_mean(coordinator: Coordinator) -> None:
    hospitals = averaging(coordinator, HALF)
    assert opened(coordinator).certificate.result is None
    assert read(coordinator) == read(coordinator, 0)
    train(coordinator, hospitals, 1)
    assert opened(coordinator).certificate.result is None
    assert read(coordinator) == read(coordinator, 1)
    # It follows the rounds while the study runs.
    train(coordinator, hospitals, 2, 3)
    result = opened(coordinator).certificate.result
    assert result is not None
    assert result.rounds == [2, 3]


@pytest.mark.quick("sqlite")
def test_a_lost_model_leaves_the_certificate_without_a_result(coordinator: Coordinator) -> None:
    averaging(coordinator, HALF, 1, 2, 3)
    coordinator.blobs.remove(models_of("sepsis"), views.locate_model(coordinator, "sepsis", 2).info.sha256)
    assert opened(coordinator).certificate.result is None
    with pytest.raises(FileNotFoundError, match="backup"):
        locate_result(coordinator, "sepsis")


@pytest.mark.slow
def test_the_mean_is_computed_once_for_all_readers(coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece of a download asks anew, and no reader may fill the disk or keep the processor busy."""
    hospitals = averaging(coordinator, FALLING, 1, 2)
    computed = list[int]()

    def counted(*arguments: Any) -> Any:
        computed.append(1)
        return mean_file(*arguments)

    monkeypatch.setattr(results, "mean_file", counted)
    located = locate_result(coordinator, "sepsis")
    assert len({read(coordinator) for _ in range(3)} | {located.open().read(0, 1 << 20)}) == 1
    assert opened(coordinator).certificate.result is not None
    assert len(computed) == 1
    # No name stays behind.
    assert coordinator.blobs.sweep(-1.0) == 0
    train(coordinator, hospitals, 3)
    newer = read(coordinator)
    assert hashlib.sha256(newer).hexdigest() == locate_result(coordinator, "sepsis").info.sha256
    assert len(computed) == 2
    # Who found the earlier one reads it to its end.
    assert hashlib.sha256(located.open().read(0, 1 << 20)).hexdigest() == located.info.sha256


@pytest.mark.slow
def test_a_model_without_its_row_is_not_left_out_in_silence(coordinator: Coordinator) -> None:
    """Otherwise the mean of the others would be signed as the result."""
    averaging(coordinator, HALF, 1, 2, 3)

    def lose(tx: Transaction) -> None:
        row = rows.find_study(tx, "sepsis")
        tx.session.execute(delete(ModelRow).where(ModelRow.study_id == row.id, ModelRow.version == 2))

    coordinator.database.write("lose-model", lose)
    for shown in (lambda: opened(coordinator), lambda: locate_result(coordinator, "sepsis")):
        with pytest.raises(Rejected, match="ledger names is missing") as refused:
            shown()
        assert refused.value.code == "study-finished"
