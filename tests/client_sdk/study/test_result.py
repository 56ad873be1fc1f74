"""The result of a study, held against its ledger."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load

from accounting.budget.ledger import Entry
from client_sdk.study.result import released_model, released_rounds, study_model
from study_protocol.study.messages import LedgerEntry, ModelInfo
from study_protocol.study.model_file import ModelMetadata
from study_protocol.study.plan_of import plan_of
from study_protocol.study.settings import StudySettings
from study_protocol.wire.tensor_files import encode_model
from study_protocol.wire.tensors import TensorError
from tests.factories.certificates import ONE
from tests.factories.ledgers import after, opened
from tests.factories.settings import settings

PLAIN = settings(max_steps=9)
HALF = settings(max_steps=9, training={"optimiser": {"averaging": {"name": "tail", "share": 0.5}}})


class Study:
    """Rounds that released files whose bias is the round's number; `joined` members come before each release."""

    def __init__(self, rounds: int, chosen: StudySettings = PLAIN, *, named: bool = True, joined: int = 0) -> None:
        self.settings, self.files = chosen, dict[int, bytes]()
        self.entries: list[Entry] = opened(plan_of(chosen), chosen.as_json(), "sepsis")
        self._release(0, named=named)
        for number in range(1, rounds + 1):
            self.entries.append(after(self.entries, "reserved", number))
            self.entries.append(after(self.entries, "settled", number, report=None))
            settled = self.entries[-1]
            self.entries += self._members(joined)
            self._release(number, (settled.sequence, settled.sha256), named=named)

    def _members(self, count: int) -> list[Entry]:
        more: list[Entry] = []
        for place in range(count):
            more.append(after([*self.entries, *more], "roster", change="enrolled", place=place))
        return more

    def _release(self, number: int, ledger: tuple[int, str] | None = None, *, named: bool) -> None:
        said = ModelMetadata.of("sepsis", self.settings, number, *([] if ledger is None else [ledger]))
        body = encode_model({"bias": np.array([float(number)], np.float32)}, said.header())
        self.files[number] = body
        if named:
            digest = hashlib.sha256(body).hexdigest()
            number_of = {} if number == 0 else {"round": number}
            self.entries.append(after(self.entries, "released", **number_of, sha256=digest, bytes=len(body)))

    @property
    def client(self) -> Any:
        return self.certified(None)

    def certified(self, result: dict[str, Any] | None) -> Any:
        """A client whose coordinator's certificate names this mean."""
        named = {} if result is None else {"result": result}
        certificate = json.dumps({**ONE.raw, "certificate": {**ONE.raw["certificate"], **named}}).encode()
        newest = max(self.files)
        model = ModelInfo(version=newest, sha256=hashlib.sha256(self.files[newest]).hexdigest(), bytes=9)
        study = SimpleNamespace(study="sepsis", settings=self.settings, model=model)
        return SimpleNamespace(
            study=lambda name: study,
            model=lambda name, version: self.files[newest if version == "latest" else version],
            ledger=self._ledger,
            rounds=self._rounds,
            certificate=lambda name: certificate,
        )

    def _ledger(self, study: str, after: int, limit: int) -> Any:
        shown = self.entries[after : after + limit]
        return SimpleNamespace(entries=[LedgerEntry.model_validate(entry.to_dict()) for entry in shown])

    def _rounds(self, study: str, after: int | None = None) -> Any:
        """Two a page; every second round answered a question."""
        views = [(number, number if number in self.files else None) for number in range(1, 2 * max(self.files) + 1)]
        place = after or 0
        page = [SimpleNamespace(model_version=version) for _, version in views[place : place + 2]]
        return SimpleNamespace(rounds=page, next=place + 2 if place + 2 < len(views) else None)


def biases(body: bytes) -> Sequence[float]:
    return load(body)["bias"].tolist()


@pytest.mark.parametrize("joined", [0, 3, 25])
def test_the_newest_model_is_the_one_that_the_ledger_names(joined: int) -> None:
    """However many members came between the charge and the release."""
    found = study_model(Study(3, joined=joined).client, "sepsis")
    assert (found.round, found.names_study, found.averaged) == (3, True, ())
    assert biases(found.body) == [3]


def test_the_mean_of_the_newest_half_is_the_result_where_the_settings_name_it() -> None:
    found = study_model(Study(4, HALF).client, "sepsis")
    assert (found.round, found.averaged) == (4, (3, 4))
    assert biases(found.body) == [3.5]


def test_the_mean_is_the_one_that_the_certificate_names(tmp_path: Path) -> None:
    study = Study(4, HALF)
    body = study_model(study.client, "sepsis", tmp_path).body
    # The models that it is made of are kept where a folder is given.
    assert [path.read_bytes() for path in sorted(tmp_path.iterdir())] == [study.files[3], study.files[4]]
    named = {"sha256": hashlib.sha256(body).hexdigest(), "bytes": len(body), "rounds": [3, 4]}
    assert study_model(study.certified(named), "sepsis").body == body
    with pytest.raises(TensorError, match="certificate names another file"):
        study_model(study.certified({**named, "sha256": "ab" * 32}), "sepsis")
    # A study that runs has released another model meanwhile.
    later = {**named, "sha256": "ab" * 32, "rounds": [3, 4, 5]}
    assert study_model(study.certified(later), "sepsis").body == body


def test_before_the_first_round_the_result_is_the_initial_model() -> None:
    found = study_model(Study(0, HALF).client, "sepsis")
    assert (found.round, biases(found.body)) == (0, [0])


def test_an_initial_model_need_not_say_of_which_study_it_is() -> None:
    other = Study(0)
    other.files[0] = encode_model({"bias": np.zeros(1, np.float32)}, {})
    assert not study_model(other.client, "sepsis").names_study


def test_rounds_that_released_nothing_are_left_out() -> None:
    assert released_rounds(Study(3).client, "sepsis") == [1, 2, 3]


def test_a_ledger_of_before_the_names_is_believed_by_its_settled_entry() -> None:
    assert study_model(Study(2, named=False).client, "sepsis").round == 2


def _another_file(study: Study) -> None:
    said = ModelMetadata.of("sepsis", PLAIN, 2, (study.entries[-2].sequence, study.entries[-2].sha256))
    study.files[2] = encode_model({"bias": np.array([9.0], np.float32)}, said.header())


def _another_entry(study: Study) -> None:
    said = ModelMetadata.of("sepsis", PLAIN, 2, (4, "ab" * 32))
    study.files[2] = encode_model({"bias": np.array([2.0], np.float32)}, said.header())


def _another_round(study: Study) -> None:
    study.files[2] = study.files[1]


def _nothing(study: Study) -> None:
    study.files[2] = encode_model({"bias": np.array([2.0], np.float32)}, {})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_another_file, "not the one that the study's ledger names"),
        (_another_entry, "names an entry that the study's ledger does not have"),
        (_another_round, "another round"),
        (_nothing, "does not say"),
    ],
)
def test_a_file_that_is_not_the_released_one_is_refused(change: Any, words: str) -> None:
    study = Study(2)
    change(study)
    with pytest.raises(TensorError, match=words) as refused:
        study_model(study.client, "sepsis")
    assert refused.value.code == "wrong-metadata"


def test_a_model_of_another_study_is_none_of_this_one() -> None:
    client = Study(1).client
    other = SimpleNamespace(**vars(client.study("sepsis")) | {"study": "stroke"})
    with pytest.raises(TensorError, match="another study"):
        released_model(client, other, 1)  # type: ignore[arg-type]
