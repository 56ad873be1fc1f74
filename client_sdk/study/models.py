"""The models of one study as its hospital takes them: the very bytes that were signed, of the round they claim."""

from __future__ import annotations

import hashlib

from accounting.budget.releases import named_models
from client_sdk.api.client import Client
from client_sdk.errors import BadAssignment, NotFoundError, Refused
from client_sdk.guard.ledger import HospitalLedger
from private_learning.training import LocalTraining
from private_learning.training.weights import weight_out_of_bounds
from study_protocol.study.bounds import MAX_WEIGHT
from study_protocol.study.messages import ModelInfo
from study_protocol.study.model_file import LONGEST_METADATA, ModelMetadata
from study_protocol.wire.tensors import Array, TensorError, decode, encoded_size_limit, metadata_in


class StudyModels:
    """The models that a round starts from. A model that is not the expected one raises BadAssignment."""

    def __init__(self, client: Client, study: str, training: LocalTraining, ledger: HospitalLedger) -> None:
        self._client, self._study, self._training, self._ledger = client, study, training, ledger

    def assigned(self, model: ModelInfo) -> dict[str, Array]:
        """The weights that a signed assignment names.

        Raises:
            Refused: a weight is beyond the public bound: with it records could be made to overflow.
        """
        body = self._downloaded(model.version)
        if hashlib.sha256(body).hexdigest() != model.sha256:
            raise BadAssignment("the model is not the one that the assignment names")
        return _within_bounds(self._weights(body, model.version))

    def before(self, model: ModelInfo) -> dict[str, Array] | None:
        """The weights released before the assigned ones, where the study clips around what has changed since.

        Raises:
            Refused: as `assigned`.
        """
        version = model.version - 1
        if self._training.settings.training.clipping_centre == "zero" or version < 0:
            return None
        try:
            body = self._downloaded(version)
        except NotFoundError:
            # That round came to nothing.
            return None
        models = named_models(self._ledger.seen_ledger(self._study).entries())
        # Of a ledger that names no models, what the file says of itself has to do.
        if models and version >= min(models):
            entry = models.get(version)
            if entry is None or hashlib.sha256(body).hexdigest() != entry.sha256:
                raise BadAssignment("the model before the assigned one is not the one that the ledger names")
        return _within_bounds(self._weights(body, version))

    def _downloaded(self, version: int) -> bytes:
        largest = encoded_size_limit(self._training.spec, metadata=LONGEST_METADATA)
        return self._client.model(self._study, version, largest=largest)

    def _weights(self, body: bytes, version: int) -> dict[str, Array]:
        try:
            weights = decode(body, self._training.spec, metadata=LONGEST_METADATA)
            self._require_of_round(ModelMetadata.within(metadata_in(body)), version)
        except TensorError as error:
            raise BadAssignment(f"the model is not one of this task and round: {error.detail}") from error
        return weights

    def _require_of_round(self, metadata: ModelMetadata | None, version: int) -> None:
        if metadata is None:
            # Initial weights may come from any program.
            if version > 0:
                raise BadAssignment("the model's file does not say which study and round it is of")
            return
        metadata.require(self._study, self._training.settings, version)
        # Every entry was checked before anything was computed.
        if (
            version > 0
            and self._ledger.seen_ledger(self._study).hash_of(metadata.ledger_entries) != metadata.ledger_sha256
        ):
            raise BadAssignment("the model's file names an entry of the ledger that the ledger does not have")


def _within_bounds(weights: dict[str, Array]) -> dict[str, Array]:
    """The same weights. Raises Refused."""
    name = weight_out_of_bounds(weights)
    if name is not None:
        raise Refused(
            "weights-out-of-bounds",
            f"the model's parameter {name!r} holds a number beyond ±{MAX_WEIGHT:g}: lower the learning rate, or begin "
            "with other weights",
        )
    return weights
