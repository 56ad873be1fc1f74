"""The initial model, and the numbers that are put beside a published one."""

from __future__ import annotations

import numpy as np

from server.db import rows
from server.db.blobs import Blob, IncomingFile, models_of
from server.db.ledger_store import lock_account
from server.db.session import Transaction
from server.db.tables import ModelRow, StudyRow
from server.domain.errors import Rejected
from server.services.coordinator import Coordinator, Written
from server.services.views import model_info
from study_protocol.study.any_settings import require_training
from study_protocol.study.bounds import MAX_WEIGHT
from study_protocol.study.messages import Metrics, ModelInfo
from study_protocol.study.model_file import ModelMetadata
from study_protocol.versions import NAMED_MODELS
from study_protocol.wire.failpoints import failpoint, register
from study_protocol.wire.tensor_files import TensorFile, read
from study_protocol.wire.tensors import Spec, TensorError, spec_to_json

register("api.before-model-file", "api.after-model-file", "api.after-model-commit")


def put_initial(coordinator: Coordinator, study: str, incoming: IncomingFile) -> Written[ModelInfo]:
    """Freeze names, shapes and types. The study begins to enrol. The same bytes again: created False.

    Raises:
        Rejected: `unknown-study`, `frozen` (other bytes than before), `weights-out-of-bounds`.
        TensorError: `malformed`, `wrong-names` (no tensor at all), `wrong-dtype`, `wrong-shape` (an empty tensor),
            `not-finite`, `wrong-metadata` (the file says that it is another model).
    """
    # Before the body is parsed: a repetition costs no more than its hash.
    earlier = coordinator.database.read(
        "find-initial-model", lambda tx: _find_recorded(tx, rows.find_study(tx, study), incoming)
    )
    if earlier is not None:
        return earlier
    with incoming.opened() as file:
        tensors = TensorFile(file.descriptor)
        spec = _initial_spec(tensors)
        # Any program may make initial weights, but a file's metadata must be true.
        metadata = ModelMetadata.within(tensors.metadata)
        if metadata is not None:
            settings = coordinator.database.read(
                "find-settings", lambda tx: rows.settings_of(rows.find_study(tx, study))
            )
            metadata.require(study, require_training(settings), 0)
    failpoint("api.before-model-file")
    blob = coordinator.blobs.keep(incoming, models_of(study))
    failpoint("api.after-model-file")
    written = coordinator.database.write(
        "put-initial-model", lambda tx: _record(coordinator, tx, study, incoming, blob, spec)
    )
    failpoint("api.after-model-commit")
    return written


def _initial_spec(tensors: TensorFile) -> Spec:
    """Return Names, shapes and types of an initial model, every number of it finite and within the bound of weights."""
    spec = tensors.spec
    if not spec:
        raise TensorError("wrong-names", "a model has at least one tensor")
    for shape, dtype in spec.values():
        if dtype != "float32":
            raise TensorError("wrong-dtype", "model parameters are float32")
        if 0 in shape:
            raise TensorError("wrong-shape", "a model has no empty tensors")
    # Reading raises for a number that is not finite.
    for name, _, values in read(tensors):
        if float(np.abs(values).max()) > MAX_WEIGHT:
            raise Rejected(
                "weights-out-of-bounds",
                f"the model's parameter {name!r} holds a number beyond ±{MAX_WEIGHT:g}, from which no hospital trains: "
                "begin with other weights",
            )
    return spec


def _find_recorded(tx: Transaction, study: StudyRow, incoming: IncomingFile) -> Written[ModelInfo] | None:
    row = tx.session.get(ModelRow, (study.id, 0))
    if row is None:
        if study.state == "finished":
            raise Rejected("frozen", "the study is finished")
        if not rows.settings_of(study).privacy.rules.trains:
            raise Rejected("frozen", "a study of queries alone has no model")
        return None
    if row.sha256 != incoming.sha256:
        raise Rejected("frozen", "the initial model is set and cannot be replaced: open a new study")
    return Written(model_info(row), created=False)


def _record(
    coordinator: Coordinator, tx: Transaction, study: str, incoming: IncomingFile, blob: Blob, spec: Spec
) -> Written[ModelInfo]:
    row = rows.lock_study(tx, study)
    # Again, under the lock: two may have sent different models at once.
    earlier = _find_recorded(tx, row, incoming)
    if earlier is not None:
        return earlier
    privacy = require_training(rows.settings_of(row)).privacy
    try:
        privacy.sent(spec)
    except ValueError as error:
        raise TensorError("wrong-names", str(error)) from error
    moves = privacy.adaptive_clip is not None
    model = ModelRow(
        study_id=row.id,
        version=0,
        sha256=blob.sha256,
        bytes=blob.bytes,
        created_at=tx.now(),
        clip_norm=privacy.clip_norm if moves else None,
    )
    tx.session.add(model)
    row.model_spec = spec_to_json(spec)
    # Hospitals of a study that was created before could not read such a ledger. A norm that moves is always named.
    if (coordinator.binds_models or moves) and row.protocol >= NAMED_MODELS:
        lock_account(tx, coordinator.signer, row).record_release(model)
    rows.enter_state(tx, row, "enrolling")
    return Written(model_info(model), created=True)


def record_metrics(coordinator: Coordinator, study: str, version: int, metrics: Metrics) -> Written[Metrics]:
    """Record metrics of a model. Later ones replace earlier ones. Raises `unknown-study`, `unknown-model`."""

    def work(tx: Transaction) -> Written[Metrics]:
        row = rows.lock_study(tx, study)
        model = tx.session.get(ModelRow, (row.id, version))
        if model is None:
            raise Rejected("unknown-model", "no such version: it is not published yet, or its round was abandoned")
        fresh, written = model.metrics is None, metrics.model_dump(mode="json")
        # A repetition is no news.
        if model.metrics != written:
            model.metrics = written
            rows.append_event(tx, row, "metrics-recorded", version)
        return Written(metrics, created=fresh)

    return coordinator.database.write("record-metrics", work)
