"""Checks of a model's file: that it is the one that a certificate names, and that a mean follows from its models."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from accounting.budget.ledger import Entry
from accounting.budget.releases import named_models
from study_protocol.documents.check import Check, beyond
from study_protocol.documents.phrases import made_of, result_in_words
from study_protocol.study.averaging import mean_file, opener
from study_protocol.study.certificate import Certificate, CertifiedMean
from study_protocol.study.messages import ModelInfo
from study_protocol.study.model_file import ModelMetadata
from study_protocol.wire.tensor_files import TensorFile
from study_protocol.wire.tensors import TensorError

_PIECE = 1 << 20
_GET_BOTH = "A running study's result changes with each round: get file and certificate again, one after the other"


def check_model(stated: Certificate, path: Path) -> Check:
    """Return the check that the file is the model that the certificate names.

    Raises:
        OSError: it cannot be read.
    """
    stated_model, result = stated.model, stated.result
    if stated_model is None:
        return Check("model", "bad", "the certificate names no model: none had been released")
    digest, size = _file_digest(path)
    if result is not None and (digest, size) == (result.sha256, result.bytes):
        return _result(stated, result, path)
    if (digest, size) != (stated_model.sha256, stated_model.bytes):
        if result is not None:
            words = f"{path} is not the study's result, {made_of(result.rounds)}: another SHA-256. {_GET_BOTH}"
            return Check("model", "bad", words)
        if (mean := _mean_of(stated, path)) is not None:
            return Check("model", "not known", mean)
        return Check("model", "bad", f"{path} is not the model of round {stated_model.version}: another SHA-256")
    objection = _of_another(stated, stated_model, path) or beyond(stated)
    if objection is not None:
        return Check("model", "bad", f"{path} has the SHA-256 that is named, but {objection}")
    return Check("model", "good", f"{path} is the model that round {stated_model.version} released")


def check_mean(stated: Certificate, released: Sequence[Path], entries: Sequence[Entry] | None) -> Check:
    """Return the check that the certificate's result is the mean of these released models, computed again.

    Args:
        released: files of released models. Those that the result is not made of are left aside.
        entries: of the study's ledger, checked. None: no ledger says which files were released.

    Raises:
        OSError: one cannot be read.
    """
    result = stated.result
    if result is None:
        return Check("mean", "not known", "the certificate names no mean of models: `wardround certificate show`")
    try:
        return _mean_again(stated, result, released, entries)
    except TensorError as error:
        return Check("mean", "bad", f"a released model: {error.detail}")


def _mean_again(
    stated: Certificate, result: CertifiedMean, released: Sequence[Path], entries: Sequence[Entry] | None
) -> Check:
    """Raises TensorError, OSError."""
    files = _of_rounds(stated, result, released)
    if lacking := [number for number in result.rounds if number not in files]:
        words = f"{len(lacking)} of its {len(result.rounds)} models are not there, the first of round {lacking[0]}"
        return Check("mean", "not known", words)
    if (wrong := _other_release(stated, files, entries)) is not None:
        return Check("mean", "bad", f"{files[wrong]} is not the model of round {wrong} that the ledger names")
    models, metadata = zip(*(opener(files[number]) for number in result.rounds), strict=True)
    digest, size = _digest(mean_file(models, metadata, result.weights or None))
    if (digest, size) != (result.sha256, result.bytes):
        return Check("mean", "bad", f"the mean of these models is another file, of SHA-256 {digest}")
    source = "" if entries is None else ", each as the ledger names it"
    return Check(
        "mean", "good", f"computed again from {len(files)} released models{source}: the SHA-256 that is signed"
    )


def _of_rounds(stated: Certificate, result: CertifiedMean, released: Sequence[Path]) -> dict[int, Path]:
    """Return the files that say they are of the result's rounds, by round. Raises TensorError, OSError."""
    files = dict[int, Path]()
    for path in released:
        try:
            metadata = opener(path)[1]
        except TensorError as error:
            raise TensorError(error.code, f"{path}: {error.detail}") from error
        if metadata is None or metadata.mean_of or metadata.round not in result.rounds:
            continue
        if (metadata.study, metadata.settings_sha256) == (stated.study, stated.settings_sha256):
            files[metadata.round] = path
    return files


def _other_release(stated: Certificate, files: dict[int, Path], entries: Sequence[Entry] | None) -> int | None:
    """Return a round whose file is another one than the ledger names, or None."""
    models = {} if entries is None else named_models(entries[: stated.ledger.entries])
    # A ledger that names no models says nothing about files.
    if not models:
        return None
    for number, path in files.items():
        if number not in models or _file_digest(path) != (models[number].sha256, models[number].bytes):
            return number
    return None


def _result(stated: Certificate, result: CertifiedMean, path: Path) -> Check:
    """Return the check of a file that has the result's SHA-256: what it says of itself is what is signed."""
    try:
        metadata = opener(path)[1]
    except TensorError as error:
        return Check("model", "bad", f"{path} has the SHA-256 that is named, but {error.detail}")
    origin = (stated.study, stated.settings_sha256, tuple(result.rounds), tuple(result.weights))
    if metadata is not None and origin != (
        metadata.study,
        metadata.settings_sha256,
        metadata.mean_of,
        metadata.mean_weights,
    ):
        return Check("model", "bad", f"{path} has the SHA-256 that is named, but says that it is of other models")
    if result.rounds[-1] > stated.round:
        return Check("model", "bad", f"it holds round {result.rounds[-1]}, and the numbers end with {stated.round}")
    words = f"{path} is the study's result, {result_in_words(result)}: it has the SHA-256 that is signed"
    return Check("model", "good", words)


def _file_digest(path: Path) -> tuple[str, int]:
    with path.open("rb") as file:
        return _digest(iter(lambda: file.read(_PIECE), b""))


def _digest(pieces: Iterable[bytes | memoryview]) -> tuple[str, int]:
    """Return SHA-256 (hex) and size of a file that comes in pieces."""
    digest, size = hashlib.sha256(), 0
    for piece in pieces:
        digest.update(piece)
        size += len(piece)
    return digest.hexdigest(), size


def _mean_of(stated: Certificate, path: Path) -> str | None:
    """Return words about a file that calls itself a mean of models that the numbers count, else None."""
    try:
        with path.open("rb") as file:
            metadata = ModelMetadata.within(TensorFile(file.fileno()).metadata)
    except TensorError:
        return None
    if metadata is None or metadata.adapted_from or not metadata.mean_of or metadata.round > stated.round:
        return None
    if (metadata.study, metadata.settings_sha256) != (stated.study, stated.settings_sha256):
        return None
    return (
        f"{path} says that it is the mean of the models of {len(metadata.mean_of)} rounds, {min(metadata.mean_of)} to "
        f"{metadata.round}: such a mean costs nothing beyond these numbers, but no certificate names its bytes. "
        "`wardround study model` makes it again from models that it checks"
    )


def _of_another(stated: Certificate, stated_model: ModelInfo, path: Path) -> str | None:
    """Return the file's own statement about itself where it is not the model of the certificate, else None."""
    try:
        with path.open("rb") as file:
            metadata = ModelMetadata.within(TensorFile(file.fileno()).metadata)
    except TensorError as error:
        return error.detail
    if metadata is not None and metadata.adapted_from is not None:
        return f"says itself that a hospital adapted it from the file {metadata.adapted_from}: no certificate covers it"
    expected = (stated.study, stated_model.version, stated.settings_sha256, ())
    if metadata is None or (metadata.study, metadata.round, metadata.settings_sha256, metadata.mean_of) == expected:
        return None
    return f"says itself that it is of study {metadata.study}, round {metadata.round}: its numbers are not these"
