"""From a settled round to a published model: sum, central noise, server optimiser, release.

The charge is committed already. Everything here but the noise can be done again from the start until the release is
committed. The digest of the noise is committed before any result that depends on it can be seen. The noise is drawn
again only before that commit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np

from server.db import rows
from server.db.blobs import (
    Blob,
    IncomingFile,
    OpenedFile,
    Place,
    models_of,
    noised_of,
    optimisers_of,
    sum_of,
    update_of,
)
from server.db.leases import Lease, commit_under_lease
from server.db.ledger_store import (
    attempt_under_way,
    lock_account,
    names_models,
    require_base,
    require_unchanged,
    settled_at,
)
from server.db.session import Transaction
from server.db.session_store import opened_sums
from server.db.tables import ModelRow, RoundRow, StudyRow
from server.domain.admission import body_spec, coordinates, mechanism
from server.domain.bounds import longest_update
from server.domain.clip_norm import next_clip_norm
from server.domain.optimiser import begin, new_state, new_weights, restored, state_spec
from server.domain.release import NotFinite, OpenedSum, measured, noised_pieces, rescaling_factor, summed_spec
from server.domain.rounds import Abandon, move
from server.services.coordinator import Coordinator
from server.services.queries.schedule import evaluate_released
from server.services.rounds.anchor import anchor_of
from server.services.rounds.close import abandon_round
from study_protocol.secure_sum.parameters import UPDATE
from study_protocol.secure_sum.vectors import RingVector, VectorSpec
from study_protocol.study.any_settings import require_training
from study_protocol.study.model_file import LONGEST_METADATA, ModelMetadata
from study_protocol.study.settings import StudySettings
from study_protocol.wire.failpoints import failpoint, register
from study_protocol.wire.tensor_files import Piece, TensorFile, encode_pieces, read, read_at
from study_protocol.wire.tensors import Spec, encoded_size_limit

register("worker.before-noise-file", "worker.before-model-file", "worker.after-model-file")


class InputsLost(Exception):
    """A file that the round needs is gone: it ends without a model, its charge kept. The text is the reason."""


@dataclass(frozen=True)
class Inputs:
    """The inputs of a settled round.

    clip_norm  of the round, None where the study's is constant
    attempt    its place in the noise schedule, None without one
    survivors  how many updates are in the opened sum
    ledger     the entry that settled it
    """

    study: str
    round: int
    settings: StudySettings
    attempt: int | None
    model: Spec
    updates: tuple[tuple[str, str], ...]
    opened: tuple[VectorSpec, str] | None
    survivors: int
    noised_sha256: str | None
    weights_sha256: str
    optimiser_sha256: str | None
    clip_norm: float | None
    ledger: tuple[int, str]

    @property
    def in_round(self) -> StudySettings:
        """The settings as the round sees them."""
        return self.settings.at_clip_norm(self.clip_norm).at_attempt(self.attempt)


def release_round(
    coordinator: Coordinator, lease: Lease, study: str, number: int, renew_lease: Callable[[], None]
) -> None:
    """Publish the model that round `number` makes. `renew_lease` is called again and again, to keep the lease alive."""
    inputs = coordinator.database.read("read-settled-round", lambda tx: _inputs(coordinator, tx, study, number))
    try:
        with _total(coordinator, lease, inputs, renew_lease) as total:
            model, state = _publish(coordinator, inputs, total, renew_lease)
            clip_norm = next_clip_norm(inputs.settings.at_attempt(inputs.attempt), inputs.clip_norm, total)
    except (InputsLost, NotFinite) as error:
        reason = str(error) if isinstance(error, InputsLost) else error.reason
        commit_under_lease(coordinator.database, lease, "abandon", lambda tx: _abandon(coordinator, tx, inputs, reason))
        return
    commit_under_lease(
        coordinator.database, lease, "release", lambda tx: _release(coordinator, tx, inputs, model, state, clip_norm)
    )


def _inputs(coordinator: Coordinator, tx: Transaction, study: str, number: int) -> Inputs:
    row = rows.find_study(tx, study)
    # Its settings say how much noise is drawn, and what is published is published for good.
    require_unchanged(tx, coordinator.signer, row)
    round = rows.find_round(tx, row.id, number)
    base = tx.session.get_one(ModelRow, (row.id, round.base_version))
    require_base(tx, row, base, number)
    received = [(p.client, p.sha256) for p in rows.participants(tx, round) if p.sha256 is not None]
    session = rows.find_session(tx, row.id, number)
    opened = [opened_sum for opened_sum in opened_sums(session) if opened_sum[0].name == UPDATE]
    return Inputs(
        study=study,
        round=number,
        settings=require_training(rows.settings_of(row)),
        attempt=attempt_under_way(tx, row),
        model=rows.model_spec_of(row),
        # Under masks the rows name no files, and the sum holds everything.
        updates=() if opened else tuple(received),
        opened=opened[0] if opened else None,
        survivors=0 if session is None else len(session.survivors),
        noised_sha256=round.noised_sha256,
        weights_sha256=base.sha256,
        optimiser_sha256=base.optimiser_sha256,
        clip_norm=base.clip_norm,
        ledger=settled_at(tx, row, number),
    )


@contextmanager
def _total(
    coordinator: Coordinator, lease: Lease, inputs: Inputs, renew_lease: Callable[[], None]
) -> Generator[TensorFile]:
    """Yield the sum of the updates, with the coordinator's own noise if the study has it: drawn once, and then read."""
    spec = summed_spec(inputs.settings, inputs.model)
    if mechanism(inputs.settings, inputs.model) is None:
        with _summed(coordinator, inputs, renew_lease) as incoming, incoming.opened() as file:
            yield TensorFile(file.descriptor, spec)
        return
    place = noised_of(inputs.study, inputs.round)
    with _open_file(coordinator, place, _noised(coordinator, lease, inputs, renew_lease), "noised-sum-lost") as file:
        yield TensorFile(file.descriptor, spec)


def _noised(coordinator: Coordinator, lease: Lease, inputs: Inputs, renew_lease: Callable[[], None]) -> str:
    """Return the digest of the noised sum, which is committed by then."""
    # Never drawn again: a reader of two draws over one sum could average them.
    if inputs.noised_sha256 is not None:
        return inputs.noised_sha256
    place = noised_of(inputs.study, inputs.round)
    # Nor if the row names none: it may have been set back after the release. Otherwise the file is of an attempt that
    # was never committed, and as good as another one. Of two (a worker that had lost its lease wrote one) the released
    # one is unknown.
    digests = coordinator.blobs.hashes(place)
    if len(digests) > 1:
        raise InputsLost("noised-sum-lost")
    if not digests:
        with _summed(coordinator, inputs, renew_lease) as incoming:
            failpoint("worker.before-noise-file")
            digests = [coordinator.blobs.keep(incoming, place).sha256]
    _commit_noise(coordinator, lease, inputs, digests[0])
    return digests[0]


@contextmanager
def _summed(coordinator: Coordinator, inputs: Inputs, renew_lease: Callable[[], None]) -> Generator[IncomingFile]:
    """Yield the sum with its noise in a temporary file."""
    spec, squares = summed_spec(inputs.settings, inputs.model), list[float]()
    limit, draw = encoded_size_limit(spec), coordinator.noise.of(inputs.round)
    with ExitStack() as files:
        opened, updates = _opened(coordinator, inputs, files), _updates(coordinator, inputs, files)
        pieces = noised_pieces(inputs.in_round, inputs.model, updates, opened, draw)
        incoming = files.enter_context(coordinator.blobs.receive(limit))
        _write(incoming, spec, measured(pieces, squares), renew_lease)
        shrink = None if opened is None else rescaling_factor(squares, opened.longest)
        if shrink is not None:
            long = TensorFile(files.enter_context(incoming.opened()).descriptor, spec)
            incoming = files.enter_context(coordinator.blobs.receive(limit))
            _write(incoming, spec, ((name, start, part * shrink) for name, start, part in read(long)), renew_lease)
        yield incoming


def _write(
    incoming: IncomingFile,
    spec: Spec,
    values: Iterable[Piece],
    renew_lease: Callable[[], None],
    metadata: ModelMetadata | None = None,
) -> None:
    for written in encode_pieces(spec, values, None if metadata is None else metadata.header()):
        incoming.write(written)
        # Many updates, or a large model, take longer than a lease lasts.
        renew_lease()


def _updates(coordinator: Coordinator, inputs: Inputs, files: ExitStack) -> list[TensorFile]:
    """Return the bodies that came in the clear, open until `files` is closed."""
    body = body_spec(inputs.settings, inputs.model)
    places = [(update_of(inputs.study, inputs.round, client), sha256) for client, sha256 in inputs.updates]
    opened_files = (_open_file(coordinator, place, sha256, "updates-lost") for place, sha256 in places)
    return [TensorFile(files.enter_context(file).descriptor, body) for file in opened_files]


def _open_file(coordinator: Coordinator, place: Place, sha256: str, reason: str) -> OpenedFile:
    file = coordinator.blobs.open(place, sha256)
    if file is None:
        raise InputsLost(reason)
    return file


def _opened(coordinator: Coordinator, inputs: Inputs, files: ExitStack) -> OpenedSum | None:
    """Return the sum that was made under masks, open until `files` is closed."""
    if inputs.opened is None:
        return None
    spec, sha256 = inputs.opened
    place = sum_of(inputs.study, inputs.round, spec.name)
    file = files.enter_context(_open_file(coordinator, place, sha256, "updates-lost"))

    def words(start: int, stop: int) -> RingVector:
        room = np.empty(stop - start, spec.dtype)
        read_at(file.descriptor, room, start * spec.dtype.itemsize)
        return room

    start = anchor_of(coordinator, inputs.study, inputs.settings, inputs.model, inputs.weights_sha256, None)
    size = coordinates(inputs.settings.privacy.sent(inputs.model))
    longest = longest_update(inputs.in_round, size, inputs.round, anchor=start, clients=inputs.survivors)
    # Every client rounded to the ring's grid.
    rounding = inputs.survivors * 2.0 ** -(spec.scale_bits + 1) * math.sqrt(size)
    return OpenedSum(spec, words, longest + rounding)


def _commit_noise(coordinator: Coordinator, lease: Lease, inputs: Inputs, sha256: str) -> None:
    def work(tx: Transaction) -> None:
        _settled(coordinator, tx, inputs)[1].noised_sha256 = sha256

    commit_under_lease(coordinator.database, lease, "noise", work)


def _publish(
    coordinator: Coordinator, inputs: Inputs, total: TensorFile, renew_lease: Callable[[], None]
) -> tuple[Blob, Blob | None]:
    """Write the new weights and the optimiser's state. They cannot be found before the release is committed."""

    def keep(place: Place, spec: Spec, values: Iterable[Piece], metadata: ModelMetadata | None = None) -> Blob:
        limit = encoded_size_limit(spec, metadata=0 if metadata is None else LONGEST_METADATA)
        with coordinator.blobs.receive(limit) as incoming:
            _write(incoming, spec, values, renew_lease, metadata)
            return coordinator.blobs.keep(incoming, place)

    metadata = ModelMetadata.of(inputs.study, inputs.settings, inputs.round, inputs.ledger)

    models, optimiser = models_of(inputs.study), inputs.settings.training.optimiser
    saved = state_spec(optimiser, inputs.model)
    with ExitStack() as files:
        start = _read(coordinator, files, models, inputs.weights_sha256, inputs.model)
        before = begin()
        if inputs.optimiser_sha256 is not None:
            place = optimisers_of(inputs.study)
            before = restored(_read(coordinator, files, place, inputs.optimiser_sha256, saved))
        failpoint("worker.before-model-file")
        model = keep(models, inputs.model, new_weights(inputs.settings, start, total, before), metadata)
        failpoint("worker.after-model-file")
        # It has no memory, so there is no state to save.
        if optimiser.name == "plain":
            return model, None
        return model, keep(optimisers_of(inputs.study), saved, new_state(inputs.settings, start, total, before))


def _read(coordinator: Coordinator, files: ExitStack, place: Place, sha256: str, spec: Spec) -> TensorFile:
    file = coordinator.blobs.open(place, sha256)
    if file is None:
        # Not an ending of the round: a later one would need this file, too, and a restored one makes both good.
        raise FileNotFoundError(f"a file of {place.folder} is gone: restore the blobs from their backup")
    return TensorFile(files.enter_context(file).descriptor, spec, longest_metadata=LONGEST_METADATA)


def _release(
    coordinator: Coordinator, tx: Transaction, inputs: Inputs, model: Blob, state: Blob | None, clip_norm: float | None
) -> None:
    study, round = _settled(coordinator, tx, inputs)
    published = ModelRow(
        study_id=study.id,
        version=round.number,
        sha256=model.sha256,
        bytes=model.bytes,
        optimiser_sha256=None if state is None else state.sha256,
        created_at=tx.now(),
        clip_norm=clip_norm,
    )
    tx.session.add(published)
    if names_models(tx, study):
        lock_account(tx, coordinator.signer, study).record_release(published)
    round.state, round.ended_at = move(round.state, "released"), tx.now()
    study.abandoned_in_a_row, study.resumed_alone, study.next_round_at = 0, 0, 0.0
    evaluate_released(tx, study, round.number)
    rows.append_event(tx, study, "round-released", round.number)


def _abandon(coordinator: Coordinator, tx: Transaction, inputs: Inputs, reason: str) -> None:
    study, round = _settled(coordinator, tx, inputs)
    account = lock_account(tx, coordinator.signer, study)
    abandon_round(tx, study, round, account, Abandon(reason, charged=True))


def _settled(coordinator: Coordinator, tx: Transaction, inputs: Inputs) -> tuple[StudyRow, RoundRow]:
    """Return the round, still settled. Raises IllegalMove if another process has ended it, DatabaseDiffers."""
    study = rows.lock_study(tx, inputs.study)
    round = rows.lock_round(tx, study.id, inputs.round)
    # No way leads to `released` but from here: this raises, and names both states.
    if round.state != "settled":
        move(round.state, "released")
    require_unchanged(tx, coordinator.signer, study)
    return study, round
