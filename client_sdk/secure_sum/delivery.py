"""The state that a hospital keeps for the masked rounds of one study, and the bytes that it sends in them.

Words are made once and kept: thresholds are blinded at random, and a repeated round must send the same ones.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from accounting.plan.report import DISTANCE_BINS, distance_bin
from client_sdk.api.client import Client, Signature
from client_sdk.errors import BadAssignment, ConfigurationError, LedgerDamaged, TrainingStopped
from client_sdk.guard.log_moments import LogMomentBounds
from client_sdk.guard.policy import Floors
from client_sdk.identity import Membership
from client_sdk.secure_sum.round import MaskedRound
from client_sdk.secure_sum.session import SecureSumClient
from client_sdk.secure_sum.steps import Party
from client_sdk.secure_sum.store import FileStore, newest_opened, record_of
from private_learning.training import Contribution
from study_protocol.randomness.discrete_gaussian import sampler
from study_protocol.randomness.source import Purpose, RandomSource, RoundRandomness
from study_protocol.secure_sum.parameters import (
    METRICS,
    PAPERS,
    TERMS,
    UPDATE,
    SessionPlan,
    flatten,
    histogram_name,
    sums_as_in_papers,
)
from study_protocol.secure_sum.vectors import EncodingError, RingVector, Values, VectorSpec, encode, require_in_range
from study_protocol.study.any_settings import AnySettings, require_training
from study_protocol.study.messages import AssignmentBody, Roster, SignedParameters, WitnessedHead
from study_protocol.study.privacy import Privacy
from study_protocol.study.settings import StudySettings
from study_protocol.wire import tensors
from study_protocol.wire.signing import decode_public_key

_LOG = logging.getLogger(__name__)
_PREFIX = "words/"


@dataclass(frozen=True, repr=False)
class SummedRounds:
    """The part of one hospital in the sums of one study's rounds.

    model       names and shapes of the parameters, empty in a study without training
    randomness  this hospital's streams in a round
    records     how many it trains on
    """

    settings: AnySettings
    model: tensors.Spec
    randomness: Callable[[int], RoundRandomness]
    records: int


class MaskedDelivery:
    """Keys and shares before anything is paid, masked vectors after training. A `client_sdk.study.delivery.Delivery`.

    floors   what the hospital demands of any session
    folder   of the sessions' state. Taken at the first round, so that no other process uses it until `close`
    roster   the members of an assignment's round, checked against the assignment
    vouch    the newest head of the coordinator's ledger under this hospital's signature
    records  N of all clients, as entries that this hospital has checked tell it. None while none does
    charge   number and hash of the entry that charges a round, in the ledger that this hospital has checked
    """

    def __init__(
        self,
        client: Client,
        membership: Membership,
        floors: Floors,
        summed: SummedRounds,
        folder: Path,
        roster: Callable[[AssignmentBody], Roster],
        vouch: Callable[[], WitnessedHead | None],
        records: Callable[[], float | None],
        charge: Callable[[int], tuple[int, str]],
    ) -> None:
        self._client, self._membership, self._floors = client, membership, floors
        self._summed, self._folder = summed, folder
        self._roster, self._vouch, self._records, self._charge = roster, vouch, records, charge
        self._was_accepted = False
        self._settings = summed.settings
        self._store: FileStore | None = None
        self._round: MaskedRound | None = None
        self._attempt: int | None = None

    def prepare(self, assignment: AssignmentBody, session: SignedParameters | None) -> tuple[VectorSpec, ...]:
        """Join the round's session, and return the vectors that it sums.

        Raises:
            SessionEnded, SecureSumRefused: as `MaskedRound.prepare`. StateRefused also where another process takes part
                for this hospital.
            BadAssignment: the roster shown is not the assigned one, or there are no parameters of a session.
        """
        if session is None:
            raise BadAssignment("the assignment of a round that sums under masks names no session")
        self._round, self._was_accepted = None, False
        joined = self._of(assignment)
        vectors = joined.prepare(session)
        # Only now: a session that was refused while it was prepared has been left already.
        self._round, self._attempt = joined, assignment.attempt
        return vectors

    def body(
        self,
        round_number: int,
        vectors: Sequence[VectorSpec],
        contribution: Contribution,
        log_moments: LogMomentBounds | None,
    ) -> bytes:
        """The words that will be masked, and the update where it travels in the clear.

        Raises:
            TrainingStopped: a value does not fit its vector.
        """
        words = ring_vectors_of(
            require_training(self._settings).at_attempt(self._attempt).privacy,
            self._summed.model,
            vectors,
            contribution,
            log_moments,
            # Once: two sums over almost the same hospitals would show one hospital's number.
            records=0 if self.total_records() is not None or self._reported(round_number) else self._summed.records,
            randomness=self._summed.randomness(round_number),
        )
        clear = {} if UPDATE in words else {tensors.UPDATE + name: array for name, array in contribution.update.items()}
        return to_bytes(words, clear)

    def answer(self, round_number: int, vectors: Sequence[VectorSpec], part: NDArray[np.int64]) -> bytes:
        """The words of a query's sum, in steps of its grid.

        Raises:
            TrainingStopped: a value does not fit its vector.
        """
        (spec,) = vectors
        blind = self._summed.randomness(round_number).of(Purpose.THRESHOLDS, subject=part.tobytes())
        try:
            words = encode(spec, part.astype(np.float64), blind.read)
        except EncodingError as error:
            raise TrainingStopped(f"vector {spec.name}") from error
        return to_bytes({spec.name: words}, {})

    def send(self, round_number: int, body: bytes) -> None:
        """Send what `body` made. Raises as `Client.put_update` and `MaskedRound.complete`."""
        joined, self._round = self._round, None
        if joined is None:
            raise RuntimeError("a round is prepared before it is sent")
        words, clear = from_bytes(body)
        if clear:
            self._client.put_update(
                self._membership.study, round_number, self._membership.client, tensors.encode(clear)
            )
            self._was_accepted = True
        try:
            joined.complete(words)
        finally:
            self._was_accepted = self._was_accepted or joined.shares_taken

    @property
    def was_accepted(self) -> bool:
        return self._was_accepted

    def has_opened(self, round_number: int) -> bool:
        """Whether this hospital opened its shares in a round and was shown the result that came of them."""
        record = record_of(self._opened(), self._membership.study, round_number)
        # Until then the session is kept, to ask for it.
        return record.released and record.session is None

    def leave(self, assignment: AssignmentBody) -> None:
        """Erase the session's secrets and say so, also of a session that this hospital joined before it was killed."""
        joined, self._round = self._round, None
        if joined is not None:
            joined.leave()
        elif self._opened().has_secrets(self._membership.study, assignment.round):
            self._of(assignment).leave()

    def total_records(self) -> float | None:
        """N of all clients, where the study sums costs as in the papers and N is known."""
        settings = self._settings
        if not isinstance(settings, StudySettings) or not sums_as_in_papers(settings.privacy):
            return None
        return self._records()

    def erase_expired(self) -> None:
        """Erase the secrets of sessions that have expired: killed in the midst, no step of them may ever come again."""
        if self._store is not None:
            self._store.erase_expired(int(self._client.clock.read()))

    def keeps(self, round_number: int) -> bool:
        """Not once the result was checked or the session is over: the words are without masks."""
        return self._store is None or self._store.needs_words(self._membership.study, round_number)

    def close(self) -> None:
        """Give the folder back. The next user takes it anew, also in this process."""
        if self._store is not None:
            self._store.close()
            self._store = None

    def _reported(self, round_number: int) -> bool:
        """Whether this hospital has helped to open a sum of an earlier round."""
        newest = None if self._store is None else newest_opened(self._store, self._membership.study)
        return newest is not None and newest.round < round_number

    def _opened(self) -> FileStore:
        if self._store is None:
            self._store = FileStore(self._folder)
        return self._store

    def _of(self, assignment: AssignmentBody) -> MaskedRound:
        party, store = self._party(assignment), self._opened()
        if store.moved:
            # Other words than those that were sent, under the same masks, would show the difference.
            _LOG.warning("%s was copied or restored: its sessions are left", self._folder)
            for number in store.rounds(self._membership.study):
                SecureSumClient(party, self._membership.study, number, store).abort()
            store.settle()
        self.erase_expired()
        exact = assignment.query is None and require_training(self._settings).privacy.sums_exact_values
        plan = self._plan(assignment)
        derived = self._summed.randomness(assignment.round).randomness.derived
        return MaskedRound(self._client, party, plan, store, exact=exact, witness=self._vouch(), derived=derived)

    def _plan(self, assignment: AssignmentBody) -> SessionPlan:
        study, round, roster = self._membership.study, assignment.round, assignment.roster_sha256
        ledger = self._charge(round)
        if assignment.query is not None:
            document, about = assignment.query.document, assignment.query.model
            model = None if about is None else about.sha256
            return SessionPlan.of_query(
                self._settings, document, study=study, round_number=round, roster=roster, model=model, ledger=ledger
            )
        if assignment.model is None:
            raise BadAssignment("the assignment names neither a model nor a query")
        settings, spec, model = require_training(self._settings), self._summed.model, assignment.model
        return SessionPlan.of(
            settings,
            spec,
            study=study,
            round_number=round,
            roster=roster,
            model=model.sha256,
            ledger=ledger,
            clip_norm=model.clip_norm,
            attempt=assignment.attempt,
        )

    def _party(self, assignment: AssignmentBody) -> Party:
        if not isinstance(self._client.credentials, Signature):
            raise ConfigurationError("a hospital signs with its own identity key")
        members = self._roster(assignment).members
        return Party(
            client=self._membership.client,
            identity=self._client.credentials.key,
            coordinator=decode_public_key(self._membership.coordinator_key),
            roster={m.client: decode_public_key(m.public_key) for m in members if m.state == "active"},
            roster_fingerprint=assignment.roster_sha256,
            floors=self._floors,
        )


def ring_vectors_of(
    privacy: Privacy,
    model: tensors.Spec,
    vectors: Sequence[VectorSpec],
    contribution: Contribution,
    log_moments: LogMomentBounds | None,
    *,
    records: int,
    randomness: RoundRandomness,
) -> dict[str, RingVector]:
    """The words of every vector of the session.

    randomness  this client's in the round: its share of noise, and the words that blind thresholds

    Raises:
        TrainingStopped: a value does not fit its vector. No message is sent.
    """
    distance, words = contribution.client_distance, dict[str, RingVector]()
    values_by_name: dict[str | None, Callable[[int], Values]] = {
        # An address for each vector: no two draw the same.
        histogram_name(privacy.rules): lambda place: _histogram(
            privacy,
            randomness.round,
            distance,
            randomness.of(Purpose.CLIENT_HISTOGRAM, step=place, subject=repr(distance).encode()),
        ),
        UPDATE: lambda _: flatten(contribution.update, privacy.sent(model)),
        METRICS: lambda _: np.array([float(records)]),
    }
    if log_moments is not None:
        values_by_name |= {PAPERS: lambda _: log_moments.paper_costs(), TERMS: lambda _: _terms(log_moments)}
    for place, spec in enumerate(vectors):
        if spec.name not in values_by_name:
            raise TrainingStopped(f"vector {spec.name}")
        values = values_by_name[spec.name](place)
        try:
            blinds = randomness.of(Purpose.THRESHOLDS, step=place, subject=np.ascontiguousarray(values).data)
            words[spec.name] = encode(spec, values, blinds.read)
            if spec.name == UPDATE and privacy.rules.divides_noise:
                share = randomness.of(Purpose.CENTRAL_NOISE, subject=words[spec.name].data)
                _add_share(privacy, spec, words[spec.name], share)
        except EncodingError as error:
            raise TrainingStopped(f"vector {spec.name}") from error
    return words


def _terms(log_moments: LogMomentBounds) -> Values:
    reported = log_moments.tensors()
    return np.concatenate([reported[tensors.TERMS + "filter"], reported[tensors.TERMS + "moments"]])


def _add_share(privacy: Privacy, spec: VectorSpec, words: RingVector, source: RandomSource) -> None:
    """Add this client's share of the noise of a sum of whole updates, in place.

    Every survivor adds one and at least as many as are counted on are honest: their variances add up to the noise that
    the plan states. Integers on the grid that updates were rounded to, so that no rounding follows the noise.

    words  (spec.length,) an encoded update, in steps of the noise's grid

    Raises:
        EncodingError: the vector is not on the noise's grid, or a word leaves its range.
    """
    noise = privacy.noise_of_updates(spec.length)
    if noise is None or 2.0**-spec.scale_bits != noise.spacing:
        raise EncodingError("the update is not on the grid of the noise")
    signed = words.view(f"<i{spec.dtype.itemsize}")
    for start, noise_chunk in sampler(noise.share).chunks(len(signed), source):
        # Twice a cap does not wrap: a session has three clients at least.
        signed[start : start + len(noise_chunk)] += noise_chunk.astype(signed.dtype)
    require_in_range(spec, words)


def _histogram(privacy: Privacy, round_number: int, distance: float | None, source: RandomSource) -> Values:
    """Return one count in the bin of this client's distance, under disclosure `noised` with this client's share of
    noise."""
    top = privacy.clip_norm if privacy.client_clip_norm is None else privacy.client_clip_norm
    counts = np.zeros(DISTANCE_BINS, np.int64)
    noise = privacy.histogram_noise
    if noise is None:
        counts[distance_bin(distance, top)] = 1
        return counts
    if round_number % noise.every == 0:
        counts[distance_bin(distance, top)] = 1
        # Variances add up over the honest survivors that are sure to be there. Rounded up, so that they reach std.
        share = noise.std / np.sqrt(privacy.histogram_shares)
        counts += sampler(float(np.nextafter(share, np.inf))).sample(DISTANCE_BINS, source)
    # Other rounds publish nothing: zeros without noise.
    return counts.astype(np.float64)


def to_bytes(words: Mapping[str, RingVector], clear: Mapping[str, np.ndarray]) -> bytes:
    """One file: the words, and the update where it travels in the clear."""
    return save({_PREFIX + name: np.asarray(vector) for name, vector in words.items()} | dict(clear))


def from_bytes(data: bytes) -> tuple[dict[str, RingVector], dict[str, np.ndarray]]:
    """Inverse of `to_bytes`.

    Raises:
        LedgerDamaged: the file is not what was written.
    """
    try:
        arrays = load(data)
    except (SafetensorError, ValueError) as error:
        raise LedgerDamaged("the finished vectors of this round are damaged") from error
    words = {name.removeprefix(_PREFIX): array for name, array in arrays.items() if name.startswith(_PREFIX)}
    return words, {name: array for name, array in arrays.items() if not name.startswith(_PREFIX)}
