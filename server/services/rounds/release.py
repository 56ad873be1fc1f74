"""From a settled round to a published model: sum, central noise, server optimiser, release.

The charge is committed already. Everything here can be done again from the start until the release is committed,
except the noise: its digest is committed before anything that depends on it can be seen, and drawn again only
while it is not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from client_sdk.protocol.secure_sum.parameters import UPDATE
from client_sdk.protocol.secure_sum.vectors import VectorSpec
from client_sdk.protocol.study.settings import StudySettings
from client_sdk.protocol.wire.failpoints import failpoint, register
from client_sdk.protocol.wire.tensors import Array, Spec, encode, read_file
from server.db import rows
from server.db.blobs import Blob, models_scope, noised_scope, optimisers_scope, sum_scope, update_scope
from server.db.leases import Lease, commit_under_lease
from server.db.ledger_store import lock_account, require_unchanged
from server.db.session import Transaction
from server.db.session_store import opened_sums
from server.db.tables import ModelRow, RoundRow, StudyRow
from server.domain import release as pure
from server.domain.admission import body_spec, coordinates, mechanism
from server.domain.bounds import longest_update
from server.domain.release import NotFinite, Opened, Real, noised_sum, released
from server.domain.rounds import Abandon, move
from server.services.coordinator import Coordinator
from server.services.rounds.anchor import anchor_of
from server.services.rounds.close import abandon_round

register("worker.before-noise-file", "worker.before-model-file", "worker.after-model-file")


class InputsLost(Exception):
    """A file that the round needs is gone: it ends without a model, its charge kept. The text is the reason."""


@dataclass(frozen=True)
class Inputs:
    """What a settled round is made of. survivors: how many updates are in the opened sum."""

    study: str
    round: int
    settings: StudySettings
    model: Spec
    updates: tuple[tuple[str, str], ...]
    opened: tuple[VectorSpec, str] | None
    survivors: int
    noised_sha256: str | None
    weights_sha256: str
    optimiser_sha256: str | None

    @property
    def summed(self) -> Spec:
        """The sum as it is written to disk."""
        return {name: (shape, "float64") for name, (shape, _) in self.model.items()}


def release_round(
    coordinator: Coordinator, lease: Lease, study: str, number: int, renew_lease: Callable[[], None]
) -> None:
    """Publish the model that round `number` makes. `renew_lease` is called between updates, to keep the lease alive."""
    inputs = coordinator.database.read("read-settled-round", lambda tx: _inputs(coordinator, tx, study, number))
    try:
        total = _sum(coordinator, lease, inputs, renew_lease)
        model, state = _publish(coordinator, inputs, total)
    except (InputsLost, NotFinite) as error:
        reason = str(error) if isinstance(error, InputsLost) else "not-finite"
        commit_under_lease(coordinator.database, lease, "abandon", lambda tx: _abandon(coordinator, tx, inputs, reason))
        return
    commit_under_lease(
        coordinator.database, lease, "release", lambda tx: _release(coordinator, tx, inputs, model, state)
    )


def _inputs(coordinator: Coordinator, tx: Transaction, study: str, number: int) -> Inputs:
    row = rows.find_study(tx, study)
    # Its settings say how much noise is drawn, and what is published is published for good.
    require_unchanged(tx, coordinator.signer, row)
    round = rows.find_round(tx, row.id, number)
    base = tx.session.get_one(ModelRow, (row.id, round.base_version))
    received = [(p.client, p.sha256) for p in rows.participants(tx, round) if p.sha256 is not None]
    session = rows.find_session(tx, row.id, number)
    opened = [] if session is None else [found for found in opened_sums(session) if found[0].name == UPDATE]
    return Inputs(
        study=study,
        round=number,
        settings=rows.settings_of(row),
        model=rows.model_spec_of(row),
        # Under masks the rows name no files, and the sum holds everything.
        updates=() if opened else tuple(received),
        opened=opened[0] if opened else None,
        survivors=0 if session is None else len(session.survivors),
        noised_sha256=round.noised_sha256,
        weights_sha256=base.sha256,
        optimiser_sha256=base.optimiser_sha256,
    )


def _sum(coordinator: Coordinator, lease: Lease, inputs: Inputs, renew_lease: Callable[[], None]) -> dict[str, Real]:
    """The sum of the updates, with the coordinator's own noise if the study has it: drawn once, and then read."""
    scope, noised = noised_scope(inputs.study, inputs.round), mechanism(inputs.settings, inputs.model) is not None
    # Never drawn again: whoever saw two draws over one sum could average them.
    if inputs.noised_sha256 is not None:
        path = coordinator.blobs.find(scope, inputs.noised_sha256)
        if path is None:
            raise InputsLost("noised-sum-lost")
        return dict(read_file(path, inputs.summed))
    # Nor where the row knows of none: somebody may have set it back after the release. If nobody did, the file is of an
    # attempt that was never committed, and as good as another one. Of two (a worker that had lost its lease wrote one)
    # nobody can tell which was released.
    if noised and (drawn := coordinator.blobs.kept(scope)):
        if len(drawn) > 1:
            raise InputsLost("noised-sum-lost")
        _commit_noise(coordinator, lease, inputs, drawn[0])
        return _sum(coordinator, lease, replace(inputs, noised_sha256=drawn[0]), renew_lease)
    draw = coordinator.noise.of(inputs.round)
    bodies = _bodies(coordinator, inputs, renew_lease)
    total = noised_sum(inputs.settings, inputs.model, bodies, _opened(coordinator, inputs), draw)
    if noised:
        failpoint("worker.before-noise-file")
        _commit_noise(coordinator, lease, inputs, coordinator.blobs.write(scope, encode(total)).sha256)
    return total


def _bodies(
    coordinator: Coordinator, inputs: Inputs, renew_lease: Callable[[], None]
) -> Iterable[Iterable[tuple[str, Array]]]:
    body = body_spec(inputs.settings, inputs.model)
    for client, sha256 in inputs.updates:
        path = coordinator.blobs.find(update_scope(inputs.study, inputs.round, client), sha256)
        if path is None:
            raise InputsLost("updates-lost")
        yield _watched(read_file(path, body), renew_lease)


def _watched(tensors: Iterable[tuple[str, Array]], renew_lease: Callable[[], None]) -> Iterable[tuple[str, Array]]:
    for named in tensors:
        yield named
        # Many updates take longer to add than a lease lasts.
        renew_lease()


def _opened(coordinator: Coordinator, inputs: Inputs) -> Opened | None:
    if inputs.opened is None:
        return None
    spec, sha256 = inputs.opened
    path = coordinator.blobs.find(sum_scope(inputs.study, inputs.round, spec.name), sha256)
    if path is None:
        raise InputsLost("updates-lost")
    start = anchor_of(coordinator, inputs.study, inputs.settings, inputs.model, inputs.weights_sha256, None)
    size = coordinates(inputs.model)
    longest = longest_update(inputs.settings, size, inputs.round, anchor=start, clients=inputs.survivors)
    # Every client rounded to the ring's grid.
    rounding = inputs.survivors * 2.0 ** -(spec.scale_bits + 1) * math.sqrt(size)
    return Opened(spec, np.fromfile(path, dtype=spec.dtype), longest + rounding)


def _commit_noise(coordinator: Coordinator, lease: Lease, inputs: Inputs, sha256: str) -> None:
    def work(tx: Transaction) -> None:
        _settled(coordinator, tx, inputs)[1].noised_sha256 = sha256

    commit_under_lease(coordinator.database, lease, "noise", work)


def _publish(coordinator: Coordinator, inputs: Inputs, total: dict[str, Real]) -> tuple[Blob, Blob | None]:
    """Write the new weights and the optimiser's state; nobody can find them before the release is committed."""
    scope = models_scope(inputs.study)
    weights = coordinator.blobs.find(scope, inputs.weights_sha256)
    if weights is None:
        # Not an ending of the round: a later one would need this file, too, and a restored one makes both good.
        raise FileNotFoundError("the model the round started from is gone: restore the blob folder from its backup")
    state = _optimiser_state(coordinator, inputs)
    new, state = released(inputs.settings, dict(read_file(weights, inputs.model)), total, state)
    failpoint("worker.before-model-file")
    model = coordinator.blobs.write(scope, encode(new))
    failpoint("worker.after-model-file")
    # It has no memory, so there is nothing to save.
    if inputs.settings.training.optimiser.name == "plain":
        return model, None
    return model, coordinator.blobs.write(optimisers_scope(inputs.study), encode(pure.to_tensors(state)))


def _optimiser_state(coordinator: Coordinator, inputs: Inputs) -> pure.State:
    settings = inputs.settings.training.optimiser
    if inputs.optimiser_sha256 is None:
        return pure.begin(settings, inputs.model)
    path = coordinator.blobs.find(optimisers_scope(inputs.study), inputs.optimiser_sha256)
    if path is None:
        raise FileNotFoundError("the server optimiser's state is gone: restore the blob folder from its backup")
    return pure.from_tensors(dict(read_file(path, pure.state_spec(settings, inputs.model))))


def _release(coordinator: Coordinator, tx: Transaction, inputs: Inputs, model: Blob, state: Blob | None) -> None:
    study, round = _settled(coordinator, tx, inputs)
    published = ModelRow(
        study_id=study.id,
        version=round.number,
        sha256=model.sha256,
        bytes=model.bytes,
        optimiser_sha256=None if state is None else state.sha256,
        created_at=tx.now(),
    )
    tx.session.add(published)
    round.state, round.ended_at = move(round.state, "released"), tx.now()
    study.abandoned_in_a_row, study.next_round_at = 0, 0.0
    rows.append_event(tx, study, "round-released", round.number)


def _abandon(coordinator: Coordinator, tx: Transaction, inputs: Inputs, reason: str) -> None:
    study, round = _settled(coordinator, tx, inputs)
    account = lock_account(tx, coordinator.signer, study)
    abandon_round(tx, study, round, account, Abandon(reason, charged=True))


def _settled(coordinator: Coordinator, tx: Transaction, inputs: Inputs) -> tuple[StudyRow, RoundRow]:
    """The round, which nobody has ended meanwhile. Raises IllegalMove if somebody has, DatabaseDiffers."""
    study = rows.lock_study(tx, inputs.study)
    round = rows.lock_round(tx, study.id, inputs.round)
    # No way leads to `released` but from here: this raises, and names both states.
    if round.state != "settled":
        move(round.state, "released")
    require_unchanged(tx, coordinator.signer, study)
    return study, round
