"""The result of a study: the mean of released models that its settings name, else its newest model.

The mean follows from released models alone and always has the same bytes. A process computes it once, and keeps it in
an opened file without a name for as long as no further model is released.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial

from server.db import rows
from server.db.blobs import IncomingFile, models_of
from server.db.ledger_store import released_models
from server.db.session import Transaction
from server.services.coordinator import Coordinator, KeptMean
from server.services.tampered_studies import stopping_where_rows_differ
from server.services.views import StoredModel, locate_model
from study_protocol.documents.certify import mean_of, result_rounds
from study_protocol.study.any_settings import require_training
from study_protocol.study.averaging import mean_file
from study_protocol.study.certificate import CertifiedMean
from study_protocol.study.messages import ModelInfo
from study_protocol.study.model_file import LONGEST_METADATA, ModelMetadata
from study_protocol.wire.tensor_files import TensorFile
from study_protocol.wire.tensors import encoded_size_limit

logger = logging.getLogger("wardround.results")
_COMPUTING = threading.Lock()
# Each is a file on the disk.
_REMEMBERED = 32


@dataclass(frozen=True)
class ResultModels:
    """The released models that a study's result is a mean of, ascending, and the weight of each."""

    study: str
    models: tuple[ModelInfo, ...]
    weights: tuple[float, ...]


def averaged(tx: Transaction, study: str) -> ResultModels | None:
    """Return what the study's result is a mean of. None: it is one model, or there is none.

    Raises:
        Rejected: `unknown-study`.
        DatabaseDiffers: a model is not the one that the ledger names.
    """
    row = rows.find_study(tx, study)
    settings = rows.settings_of(row)
    # A study of questions alone has no model.
    if not settings.privacy.rules.trains or require_training(settings).training.optimiser.averaging is None:
        return None
    models = {model.version: model for model in released_models(tx, row)}
    weights = result_rounds(require_training(settings), list(models))
    if not weights:
        return None
    return ResultModels(study, tuple(models[number] for number in weights), tuple(weights.values()))


def certified_mean(coordinator: Coordinator, result: ResultModels) -> CertifiedMean | None:
    """Return digest and origin of the result. None: a model's file is gone, so that it cannot be computed."""
    try:
        return _computed(coordinator, result)[1]
    except FileNotFoundError as error:
        logger.warning("the certificate names no result: %s", error)
        return None


def locate_result(coordinator: Coordinator, study: str) -> StoredModel:
    """Return the study's result: the very bytes that its certificate names.

    Raises:
        Rejected: `unknown-study`, `unknown-model`, or `study-finished` (extra stop_reason `database-differs`).
        FileNotFoundError: a released model is gone.
    """

    def found() -> ResultModels | None:
        return coordinator.database.read("locate-result", lambda tx: averaged(tx, study))

    result = stopping_where_rows_differ(coordinator, found)
    if result is None:
        return locate_model(coordinator, study)
    _, mean, file = _computed(coordinator, result)
    return StoredModel(ModelInfo(version=mean.rounds[-1], sha256=mean.sha256, bytes=mean.bytes), file.again)


def _computed(coordinator: Coordinator, result: ResultModels) -> KeptMean:
    """Return the result as this process keeps it. Raises FileNotFoundError: a released model is gone."""
    digests = tuple(model.sha256 for model in result.models)
    kept = coordinator.means.get(result.study)
    # Without the lock first: who asks for a known result must not wait while another study's is computed.
    if kept is not None and kept[0] == digests:
        return kept
    # One at a time: it is computing, and others want this process, too.
    with _COMPUTING:
        kept = coordinator.means.get(result.study)
        if kept is not None and kept[0] == digests:
            return kept
        weights = {model.version: weight for model, weight in zip(result.models, result.weights, strict=True)}
        with _written(coordinator, result) as incoming:
            # Its name goes, and the opened file stays whole.
            kept = digests, mean_of(weights, incoming.sha256, incoming.bytes), incoming.opened()
        coordinator.means[result.study] = kept
        while len(coordinator.means) > _REMEMBERED:
            coordinator.means.pop(next(iter(coordinator.means)))
        return kept


@contextmanager
def _written(coordinator: Coordinator, result: ResultModels) -> Generator[IncomingFile]:
    """Yield the mean in a temporary file. Raises FileNotFoundError."""
    openers = [partial(_opened, coordinator, result.study, model) for model in result.models]
    metadata, limit = _metadata(openers)
    with coordinator.blobs.receive(limit) as incoming:
        for piece in mean_file(openers, metadata, result.weights):
            incoming.write(piece)
        yield incoming


def _metadata(
    openers: Sequence[Callable[[], AbstractContextManager[TensorFile]]],
) -> tuple[list[ModelMetadata | None], int]:
    """Return what each file says of itself, and the most bytes of their mean."""
    metadata, limit = list[ModelMetadata | None](), 0
    for opener in openers:
        with opener() as file:
            metadata.append(ModelMetadata.within(file.metadata))
            limit = encoded_size_limit(file.spec, metadata=LONGEST_METADATA)
    return metadata, limit


@contextmanager
def _opened(coordinator: Coordinator, study: str, model: ModelInfo) -> Generator[TensorFile]:
    file = coordinator.blobs.open(models_of(study), model.sha256)
    if file is None:
        raise FileNotFoundError(f"the file of model {model.version} is gone: restore the blobs from their backup")
    with file:
        yield TensorFile(file.descriptor)
