"""A coordinator that rewrites its own ledger: chained again, and signed again with its own key. And whom it lies to."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.numpy import load, save
from sqlalchemy import select, text

from accounting.budget.budget import Budget, replay
from accounting.budget.ledger import Entry, append
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from client_sdk.study.events import RoundEvent
from client_sdk.study.hospital import Hospital
from client_sdk.study.participation import Outcome
from private_learning import tasks
from private_learning.training.weights import weights_of
from server.db.blobs import models_of
from server.db.ledger_store import Statement, entries
from server.db.rows import find_study
from server.db.session import Transaction
from server.db.tables import BudgetRow, ModelRow
from study_protocol.study.messages import LedgerHead
from study_protocol.study.model_file import ModelMetadata
from study_protocol.study.settings import StudySettings
from study_protocol.wire.signing import LEDGER_HEAD, canonical_json
from study_protocol.wire.tensors import encode, metadata_in
from tests.factories.hospitals import plain_policy, records
from tests.factories.live_coordinator import Live

# What becomes of an entry: its kind and body; None leaves it out, with everything after it.
Change = Callable[[Entry], tuple[Any, dict[str, Any]] | None]


class Enough(Exception):
    """The test has what it wanted; stands for a hospital that is switched off."""


def ledger_of(here: Live, study: str = "sepsis") -> list[Entry]:
    return here.coordinator.database.read("look", lambda tx: entries(tx, find_study(tx, study).id, 0, 500))


def rewrite(here: Live, change: Change, study: str = "sepsis", *, models: bool = False) -> list[Entry]:
    """Every entry as `change` wants it, on a good chain, under a good signature of the coordinator.

    models  the file of every released model names the new entry that settles its round, and is named by the ledger
    """
    made: list[Entry] = []
    files: dict[int | None, dict[str, Any]] = {}
    written = ledger_of(here, study)
    for entry in written:
        changed = change(entry)
        if changed is None:
            break
        kind, body = changed
        if kind == "released":
            body = body | files.get(entry.round, {})
        made.append(append(made[-1] if made else None, kind, entry.round, body))
        if models and kind == "settled":
            files[entry.round] = _rewrite_model(here, made[-1], study)
    head = LedgerHead(study=study, entries=len(made), sha256=made[-1].sha256)
    signature = here.coordinator.signer.sign(LEDGER_HEAD, head.model_dump(mode="json"))
    id = here.coordinator.database.read("look", lambda tx: find_study(tx, study).id)
    with here.coordinator.database.engine.begin() as connection:
        # Whoever owns the database can do this.
        if connection.dialect.name == "postgresql":
            connection.execute(text("ALTER TABLE ledger DISABLE TRIGGER ledger_is_append_only"))
        else:
            for trigger in ("ledger_no_update", "ledger_no_delete"):
                connection.execute(text(f"DROP TRIGGER IF EXISTS {trigger}"))
        connection.execute(
            text("DELETE FROM ledger WHERE study_id = :id AND sequence > :n"), {"id": id, "n": len(made)}
        )
        for entry in made:
            row = {"id": id, "n": entry.sequence, "kind": entry.kind, "body": canonical_json(entry.body).decode()}
            connection.execute(
                text(
                    "UPDATE ledger SET kind = :kind, body = :body, previous = :previous, sha256 = :sha256"
                    " WHERE study_id = :id AND sequence = :n"
                ),
                row | {"previous": entry.previous, "sha256": entry.sha256},
            )
        connection.execute(
            text("UPDATE budgets SET entries = :n, head_sha256 = :sha, signature = :signature WHERE study_id = :id"),
            {"id": id, "n": len(made), "sha": head.sha256, "signature": signature},
        )
    if len(made) < len(written):
        _set_back(here, study, replay(made))
    return made


def _set_back(here: Live, study: str, budget: Budget) -> None:
    """The budget's row as it stood after the newest entry that is left, as a restored database has it."""

    def work(tx: Transaction) -> None:
        row, shown = tx.session.get_one(BudgetRow, find_study(tx, study).id), Statement.of(budget)
        row.state, row.can_continue, row.round = budget.state(), budget.can_continue, budget.last_round
        row.limits, row.percentiles = shown.limits, shown.percentiles

    here.coordinator.database.write("set-back", work)


def _rewrite_model(here: Live, entry: Entry, study: str) -> dict[str, Any]:
    """The file of the model that this entry settles says so; what its ledger entry says then."""
    coordinator = here.coordinator

    def work(tx: Transaction) -> dict[str, Any]:
        id = find_study(tx, study).id
        row = tx.session.scalars(select(ModelRow).filter_by(study_id=id, version=entry.round)).one()
        file = coordinator.blobs.open(models_of(study), row.sha256)
        assert file is not None
        with file:
            body = os.read(file.descriptor, file.bytes)
        said = ModelMetadata.within(metadata_in(body))
        assert said is not None
        told = said.model_copy(update={"ledger_entries": entry.sequence, "ledger_sha256": entry.sha256})
        blob = coordinator.blobs.write(models_of(study), save(load(body), told.header()))
        row.sha256, row.bytes = blob.sha256, blob.bytes
        return {"sha256": blob.sha256, "bytes": blob.bytes}

    return coordinator.database.write("rewrite-model", work)


def forget_witnesses(here: Live, *, but: str = "") -> None:
    """Nothing that was signed is passed on any more, but of one witness."""
    with here.coordinator.database.engine.begin() as connection:
        connection.execute(text("DELETE FROM witnesses WHERE client != :but"), {"but": but})


@dataclass
class Ward:
    """A real hospital of a live study, in a directory of its own."""

    here: Live
    home: Path
    name: str

    def join(self, until: int | None = None, **options: Any) -> Outcome | None:
        """Take part until this round is answered, or to the end. None: it was switched off after the round."""

        def on_round(event: RoundEvent) -> None:
            if until is not None and event.round >= until:
                raise Enough

        chosen: dict[str, Any] = {"policy": plain_policy(), "dataset": "icu", "on_round": on_round}
        try:
            return Hospital.open(self.home).join("sepsis", None, records(seed=len(self.name)), **(chosen | options))
        except Enough:
            return None

    def ledger(self) -> HospitalLedger:
        return HospitalLedger.open(ledger_path(self.home, "icu"), read_only=True)

    @property
    def proof(self) -> Path:
        return self.home / "evidence" / "sepsis.json"


def started(here: Live, folder: Path, settings: StudySettings, *names: str) -> list[Ward]:
    """A running study `sepsis` with these hospitals, its first round open."""
    here.open_study("sepsis", settings, model=False)
    model = tasks.load(settings.training.task, settings.training.task_parameters).model()
    assert here.operator("PUT", "/v1/studies/sepsis/models/0", content=encode(weights_of(model))).is_success
    wards = [Ward(here, folder / name, name) for name in names]
    for ward in wards:
        Hospital.enrol(here.url, here.invite("sepsis", ward.name), directory=ward.home)
    assert here.operator("POST", "/v1/studies/sepsis/start").is_success
    here.work()
    return wards


@contextmanager
def working(here: Live) -> Iterator[None]:
    """The coordinator's worker moves on meanwhile."""
    ended = threading.Event()

    def work() -> None:
        while not ended.wait(0.05):
            here.work()

    worker = threading.Thread(target=work)
    worker.start()
    try:
        yield
    finally:
        ended.set()
        worker.join()


def together(*joins: Callable[[], Any]) -> list[Any]:
    """Every hospital in a thread of its own; what it returned or raised."""
    found: list[Any] = [None] * len(joins)

    def one(place: int) -> None:
        try:
            found[place] = joins[place]()
        except Exception as error:  # noqa: BLE001 (handed to the test, which says what it expected)
            found[place] = error

    threads = [threading.Thread(target=one, args=(place,)) for place in range(len(joins))]
    for thread in threads:
        thread.start()
        time.sleep(0.01)
    for thread in threads:
        thread.join()
    return found
