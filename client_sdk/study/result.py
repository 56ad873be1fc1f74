"""What a study comes to: its newest model, or the mean of released models that its settings name.

The mean is taken by whoever reads it, of files that are checked one by one. The coordinator keeps nothing for it, and
rounds train on from the released models, so that no hospital's check depends on it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from client_sdk.api.client import Client
from study_protocol.study.any_settings import require_training
from study_protocol.study.averaging import average_models, averaged_rounds
from study_protocol.study.messages import LedgerEntry, Study
from study_protocol.study.model_file import ModelMetadata
from study_protocol.wire.tensors import TensorError, metadata_in

# How many entries are read at once; the release follows the charge, most often at once.
_NEAR = 10


@dataclass(frozen=True)
class StudyModel:
    """One file. round: the newest that is in it.

    said      whether the file says of which study it is; a first model need not
    averaged  the rounds whose mean it is; one or none: a model as it was released
    """

    body: bytes
    round: int
    said: bool
    averaged: tuple[int, ...] = ()


def study_model(client: Client, study: str) -> StudyModel:
    """The result of a study so far: the mean that its settings name, else its newest model, checked.

    Raises:
        TensorError: a file is not what the study and its ledger say.
        ApiError: the study is unknown, or has no model.
    """
    shown = client.study(study)
    if shown.model is None or shown.model.version == 0:
        return released_model(client, shown, None if shown.model is None else shown.model.version)
    averaging = require_training(shown.settings).training.optimiser.averaging
    if averaging is None:
        return released_model(client, shown, shown.model.version)
    chosen = averaged_rounds(averaging, released_rounds(client, study))
    files = [released_model(client, shown, number).body for number in chosen]
    return StudyModel(average_models(files, list(chosen.values())), max(chosen), True, tuple(chosen))


def released_model(client: Client, shown: Study, version: int | None) -> StudyModel:
    """The model of one round, None: the newest, as it was released. Raises as `study_model`."""
    body = client.model(shown.study, "latest" if version is None else version)
    said = _require_of_study(client, shown, body, version)
    return StudyModel(body, (version or 0) if said is None else said.round, said is not None)


def released_rounds(client: Client, study: str) -> list[int]:
    """The rounds that released a model, ascending."""
    found, page = list[int](), client.rounds(study)
    while True:
        found += [one.model_version for one in page.rounds if one.model_version is not None]
        if page.next is None:
            return sorted(found)
        page = client.rounds(study, page.next)


def _require_of_study(client: Client, study: Study, body: bytes, version: int | None) -> ModelMetadata | None:
    """What the file says of itself, if it is true: study, settings, round, and the entry that settled it.

    Raises:
        TensorError: it is not, or a released model says nothing.
    """
    said = ModelMetadata.within(metadata_in(body))
    if said is None and version:
        raise TensorError(
            "wrong-metadata", "the model's file does not say which study and round it is of; ask who runs the study"
        )
    if said is None:
        return None
    said.require(study.study, require_training(study.settings), said.round if version is None else version)
    if said.round > 0:
        page = client.ledger(study.study, after=said.ledger_entries - 1, limit=_NEAR).entries
        found = [(entry.kind, entry.round, entry.sha256) for entry in page[:1]]
        if found != [("settled", said.round, said.ledger_sha256)]:
            raise TensorError("wrong-metadata", "the model's file names an entry that the study's ledger does not have")
        _require_named(client, study.study, body, said.round, page)
    return said


def _require_named(client: Client, study: str, body: bytes, round: int, page: list[LedgerEntry]) -> None:
    """That the ledger names these bytes, where it names models at all: then its second entry is the initial one.

    page  the ledger's entries from the one that settled the round; members may have come or left before the release
    """
    named = next((entry for entry in page if entry.kind == "released" and entry.round == round), None)
    while named is None and len(page) == _NEAR:
        page = client.ledger(study, after=page[-1].sequence, limit=_NEAR).entries
        named = next((entry for entry in page if entry.kind == "released" and entry.round == round), None)
    if named is None and all(entry.kind != "released" for entry in client.ledger(study, after=1, limit=1).entries):
        return
    if named is None or named.body.get("sha256") != hashlib.sha256(body).hexdigest():
        raise TensorError("wrong-metadata", "the model's file is not the one that the study's ledger names")
