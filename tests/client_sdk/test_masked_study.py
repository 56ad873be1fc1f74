"""What a hospital puts into the sums of a masked study."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from client_sdk.masked_study import MaskedStudy
from client_sdk.protocol.messages import LedgerEntry
from client_sdk.protocol.session_vectors import vectors_of
from client_sdk.round_words import from_bytes
from client_sdk.secure_sum_checks import Floors
from client_sdk.secure_sum_store import FileStore, Opened, RoundRecord
from client_sdk.training import Contribution
from tests.masked_studies import masked, told_terms

RECORDS = 137
SETTINGS = masked("sequential", bayesian=True)


def study(folder: Path, evidence: dict[str, Any] | None) -> MaskedStudy:
    entries = [
        LedgerEntry(
            sequence=2, kind="settled", round=1, body={"evidence": evidence}, previous="0" * 64, sha256="1" * 64
        )
    ]
    ledger: Any = SimpleNamespace(
        ledger=lambda name, after: SimpleNamespace(entries=[] if evidence is None or after else entries)
    )
    task = SimpleNamespace(model=lambda: torch.nn.Linear(2, 3))
    training: Any = SimpleNamespace(settings=SETTINGS, task=task, dataset=range(RECORDS), source=None)
    membership: Any = SimpleNamespace(study="sepsis", client="mercy")
    return MaskedStudy(ledger, membership, Floors(1, 4, False), training, folder)


def told(made: MaskedStudy, round: int) -> float:
    vectors = vectors_of(SETTINGS, made._model, 5)
    update = {name: np.full(shape, 0.01, np.float32) for name, (shape, _) in made._model.items()}
    body = made.body(round, vectors, Contribution(update, None), told_terms((0.5, 0.1, 0.2, 0.3, 0.4)), update)
    (spec,) = [one for one in vectors if one.name == "metrics"]
    return int(from_bytes(body)[0]["metrics"][0]) / 2**spec.scale_bits


def test_the_number_of_records_is_told_until_the_ledger_knows_their_sum(tmp_path: Path) -> None:
    assert told(study(tmp_path, None), 1) == pytest.approx(RECORDS, abs=1e-3)
    assert told(study(tmp_path, {"filter": 0.1, "moments": []}), 2) == pytest.approx(RECORDS, abs=1e-3)
    assert told(study(tmp_path, {"filter": 0.1, "moments": [], "records": 600.0}), 2) == 0


def test_it_is_never_in_two_sums_that_this_hospital_opened(tmp_path: Path) -> None:
    made = study(tmp_path, None)
    made._store = FileStore(tmp_path)
    opened = Opened(cohort=("mercy",), survivors=("mercy",), model="0" * 64)
    record = RoundRecord(study="sepsis", round=3, released=True, opened=opened)
    made._store.save("sepsis", 3, record.to_bytes())
    assert told(made, 3) == pytest.approx(RECORDS, abs=1e-3)
    assert told(made, 5) == 0
    made.close()
