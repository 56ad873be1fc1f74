"""The result of a study: its newest model, or the mean of released models that its settings name.

The reader takes the mean, of files that are checked one by one, and compares it with the one that the coordinator's
certificate names. Rounds train on from the released models, so that no hospital's check depends on it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from client_sdk.api.client import Client
from client_sdk.api.pages import all_rounds
from study_protocol.study.any_settings import require_training
from study_protocol.study.averaging import average_models, averaged_rounds
from study_protocol.study.certificate import SignedCertificate
from study_protocol.study.messages import LedgerEntry, Study
from study_protocol.study.model_file import ModelMetadata
from study_protocol.wire.documents import read_document
from study_protocol.wire.tensors import TensorError, metadata_in

# How many entries are read at once. The release follows the charge, most often at once.
_NEAR = 10


@dataclass(frozen=True, repr=False)
class StudyModel:
    """One file. round: the newest that is in it.

    names_study  whether the file says of which study it is. A first model need not
    averaged  the rounds whose mean it is. One or none: a model as it was released
    """

    body: bytes
    round: int
    names_study: bool
    averaged: tuple[int, ...] = ()


def study_model(client: Client, study: str, released: Path | None = None) -> StudyModel:
    """The result of a study so far: the mean that its settings name, else its newest model, checked.

    released: existing folder that gets the files of the models that a mean is made of. None: they are not kept.

    Raises:
        TensorError: a file is not what the study and its ledger say.
        ApiError: the study is unknown, or has no model.
        OSError: a file cannot be written.
    """
    received_study = client.study(study)
    if received_study.model is None or received_study.model.version == 0:
        return released_model(
            client, received_study, None if received_study.model is None else received_study.model.version
        )
    averaging = require_training(received_study.settings).training.optimiser.averaging
    if averaging is None:
        return released_model(client, received_study, received_study.model.version)
    round_numbers = averaged_rounds(averaging, released_rounds(client, study))
    with TemporaryDirectory() as temporary:
        folder, files = released or Path(temporary), list[Path]()
        for number in round_numbers:
            files.append(folder / f"round-{number}.safetensors")
            files[-1].write_bytes(released_model(client, received_study, number).body)
        body = average_models(files, list(round_numbers.values()))
    _require_as_certified(client, study, body, list(round_numbers))
    return StudyModel(body, max(round_numbers), True, tuple(round_numbers))


def _require_as_certified(client: Client, study: str, body: bytes, rounds: list[int]) -> None:
    """That the coordinator's certificate names these bytes, if it names a mean of these rounds.

    Raises:
        TensorError: it names other ones.
    """
    stated = read_document(SignedCertificate, client.certificate(study)).certificate.result
    # An earlier version names none. A running study may have released another model meanwhile.
    if stated is not None and stated.rounds == rounds and stated.sha256 != hashlib.sha256(body).hexdigest():
        raise TensorError("wrong-metadata", "the certificate names another file as the mean of these released models")


def released_model(client: Client, study: Study, version: int | None) -> StudyModel:
    """The model of one round, None: the newest, as it was released. Raises as `study_model`."""
    body = client.model(study.study, "latest" if version is None else version)
    is_reported = _require_of_study(client, study, body, version)
    return StudyModel(body, (version or 0) if is_reported is None else is_reported.round, is_reported is not None)


def released_rounds(client: Client, study: str) -> list[int]:
    """The rounds that released a model, ascending."""
    return sorted(view.model_version for view in all_rounds(client, study) if view.model_version is not None)


def _require_of_study(client: Client, study: Study, body: bytes, version: int | None) -> ModelMetadata | None:
    """Return the file's metadata if they are true: study, settings, round, and the entry that settled it.

    Raises:
        TensorError: they are not, or a released model has none.
    """
    metadata = ModelMetadata.within(metadata_in(body))
    if metadata is None and version:
        raise TensorError(
            "wrong-metadata", "the model's file does not say its study and round. Ask the coordinator's operator"
        )
    if metadata is None:
        return None
    metadata.require(study.study, require_training(study.settings), metadata.round if version is None else version)
    if metadata.round > 0:
        page = client.ledger(study.study, after=metadata.ledger_entries - 1, limit=_NEAR).entries
        first_entry = [(entry.kind, entry.round, entry.sha256) for entry in page[:1]]
        if first_entry != [("settled", metadata.round, metadata.ledger_sha256)]:
            raise TensorError("wrong-metadata", "the model's file names an entry that the study's ledger does not have")
        _require_named(client, study.study, body, metadata.round, page)
    return metadata


def _require_named(client: Client, study: str, body: bytes, round_number: int, page: list[LedgerEntry]) -> None:
    """That the ledger names these bytes, where it names models at all: then its second entry is the initial one.

    page  the ledger's entries from the one that settled the round. Members may have come or left before the release
    """
    entry_of_model = _entry_of_model(client, study, round_number, page)
    if entry_of_model is None and not _names_models(client, study):
        return
    if entry_of_model is None or entry_of_model.body.get("sha256") != hashlib.sha256(body).hexdigest():
        raise TensorError("wrong-metadata", "the model's file is not the one that the study's ledger names")


def _entry_of_model(client: Client, study: str, round_number: int, page: list[LedgerEntry]) -> LedgerEntry | None:
    """Return the first entry, from this page on, that releases the round's model."""
    while True:
        for entry in page:
            if entry.kind == "released" and entry.round == round_number:
                return entry
        if len(page) != _NEAR:
            return None
        page = client.ledger(study, after=page[-1].sequence, limit=_NEAR).entries


def _names_models(client: Client, study: str) -> bool:
    return any(entry.kind == "released" for entry in client.ledger(study, after=1, limit=1).entries)
