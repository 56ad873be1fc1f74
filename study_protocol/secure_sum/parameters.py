"""The parameters of a masked session. The party that signs them and the party that checks them build the same.

Both sides compute the vectors that a study sums. Neither believes the other's layout.

update        the update, parameters in order of their names, flattened one after the other. Scheme client with
              distributed noise: with the hospital's share of it. With an adaptive clip norm: the sum of its bits among
              the parameters
terms         instance level: cumulative log-moment bounds [at the filter order, at each order of the statement], of
              which only an upper bound on the maximum shows. Scheme client: a histogram of the clients' distances
client-terms  scheme joint: that histogram, beside the log-moments of the records
papers        scheme sequential, disclosure plain: this round's costs at q = B_i/N, at each order of the statement
metrics       the same: the hospital's number of records
answer        the only vector of a query's round: the patients' vectors, in steps of its grid
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from accounting.plan.limits import limit_among
from accounting.plan.report import DISTANCE_BINS
from accounting.plan.schemes import Scheme
from accounting.units import Definition, Level
from study_protocol.secure_sum.messages import (
    Deadlines,
    ParameterFault,
    SessionParameters,
    min_survivors_of,
    min_threshold,
    require_sound,
)
from study_protocol.secure_sum.vectors import (
    ThresholdGrid,
    VectorSpec,
    cost_vector,
    count_vector,
    largest_cap,
    maximum_vector,
)
from study_protocol.study.any_settings import AnySettings
from study_protocol.study.central_noise import GRID_BITS
from study_protocol.study.masking import MAX_CLIENTS, Masking
from study_protocol.study.privacy import Privacy
from study_protocol.study.queries import QueryDocument
from study_protocol.study.settings import StudySettings
from study_protocol.wire.tensors import Array, Spec

UPDATE, TERMS, CLIENT_TERMS, PAPERS, METRICS = "update", "terms", "client-terms", "papers", "metrics"
ANSWER = "answer"
# Eight decades in steps of 1.8 %: a smaller bound shows as 1e-4 nats, a larger one only as above the grid.
_MOMENTS = ThresholdGrid(low=1e-4, high=1e4, count=1024)


@dataclass(frozen=True)
class SessionPlan:
    """The facts of a round's session that both sides know before it is opened. Only its clients, time and name are new.

    settings          their digest
    ledger            number and hash of the entry that charges the round
    roster            fingerprint of the pinned roster
    query, model      digests of the query, and of the model that is trained or asked about. None: there is none
    training_seconds  how long the clients may train
    vectors           planned number of clients -> vectors to be summed. It may raise ParameterFault
    """

    study: str
    round: int
    settings: str
    ledger: tuple[int, str]
    roster: str
    query: str | None
    model: str | None
    masking: Masking
    training_seconds: float
    vectors: Callable[[int], tuple[VectorSpec, ...]]

    @classmethod
    def of(
        cls,
        settings: StudySettings,
        spec: Spec,
        *,
        study: str,
        round_number: int,
        roster: str,
        model: str,
        ledger: tuple[int, str],
        clip_norm: float | None = None,
        attempt: int | None = None,
    ) -> Self:
        """Return the session that a study's settings ask for.

        Args:
            spec: the model's parameters.
            clip_norm: of the round, as its model names it. None: that of the settings.
            attempt: the round's place in the noise schedule, if there is one.

        Raises:
            ValueError: the study has no sums under masks.
        """
        masking = settings.privacy.masking
        if masking is None:
            raise ValueError("masking: this study has no sums under masks")
        seconds = settings.schedule.round_deadline_seconds
        vectors = partial(vectors_of, settings.at_clip_norm(clip_norm).at_attempt(attempt), spec)
        return cls(study, round_number, settings.digest(), ledger, roster, None, model, masking, seconds, vectors)

    @classmethod
    def of_query(
        cls,
        settings: AnySettings,
        document: QueryDocument,
        *,
        study: str,
        round_number: int,
        roster: str,
        model: str | None,
        ledger: tuple[int, str],
    ) -> Self:
        """Return the session of a query's round.

        Args:
            model: digest of the released model that it is about.

        Raises:
            ValueError: the study has no sums under masks.
        """
        masking = settings.privacy.masking
        if masking is None:
            raise ValueError("masking: this study has no sums under masks")
        query, cells, seconds = document.digest(), document.question.cells, settings.schedule.round_deadline_seconds

        def vectors(clients: int) -> tuple[VectorSpec, ...]:
            return (answer_vector(cells, clients),)

        return cls(study, round_number, settings.digest(), ledger, roster, query, model, masking, seconds, vectors)

    def parameters(self, clients: int, *, session: bytes, now: float, version: Literal[1, 2] = 2) -> SessionParameters:
        """Return sound parameters for so many planned clients.

        They have the study's graph, the least threshold, and no fewer survivors than the study promises.

        Args:
            session: 32 random bytes.
            now: seconds. Deadlines count from it, whole seconds rounded up.
            version: of the parameters.

        Raises:
            ParameterFault: no session of so many clients is sound.
        """
        masking = self.masking
        if clients < 3:
            raise ParameterFault("too-few-clients", f"a session has 3 clients at least, not {clients}")
        if clients > MAX_CLIENTS:
            raise ParameterFault("too-many-clients", f"a session has {MAX_CLIENTS} clients at most, not {clients}")
        neighbours = masking.neighbours_among(clients)
        threshold = min_threshold(neighbours + 1, masking.colluders)
        survivors = max(masking.min_survivors, min_survivors_of(clients, masking.colluders, threshold))
        if survivors > clients:
            raise ParameterFault("unreachable-threshold", f"{clients} clients cannot reach {survivors}")
        start, step = math.ceil(now), math.ceil(masking.step_deadline_seconds)
        # Training lies between the shares and the masked vectors.
        masked = start + 2 * step + math.ceil(self.training_seconds)
        parameters = SessionParameters(
            **self._names(version),
            study=self.study,
            round=self.round,
            session=session,
            roster=self.roster,
            clients=clients,
            colluders=masking.colluders,
            threshold=threshold,
            neighbours=neighbours,
            min_survivors=survivors,
            vectors=self.vectors(clients),
            deadlines=Deadlines(keys=start + step, shares=start + 2 * step, masked=masked),
            expires=masked + math.ceil(masking.expiry_seconds),
        )
        # The rules that a hospital applies are applied to what is about to be signed.
        require_sound(parameters)
        return parameters

    def _names(self, version: Literal[1, 2]) -> dict[str, Any]:
        """Return the fields that name the subject of the session in each version."""
        if version == 1:
            return {"version": 1, "model": self.query or self.model}
        entries, sha256 = self.ledger
        charge = {"ledger_entries": entries, "ledger_sha256": sha256}
        return {"version": version, "settings": self.settings, **charge, "query": self.query, "model": self.model}

    def start(self, signed: SessionParameters) -> int:
        """Return the one instant of a session that the settings do not say, in seconds. All others follow from it."""
        return signed.deadlines.keys - math.ceil(self.masking.step_deadline_seconds)

    def due(self, signed: SessionParameters) -> SessionParameters:
        """Return the parameters that had to be signed in place of these.

        They are for as many clients, under the same name, from the same second.

        Raises:
            ParameterFault: no session of so many clients is sound.
        """
        try:
            now = self.start(signed)
            return self.parameters(signed.clients, session=signed.session, now=now, version=signed.version)
        except ValidationError as error:
            raise ParameterFault("unordered-deadlines", "the deadlines are no times of a study") from error


def answer_vector(cells: int, clients: int) -> VectorSpec:
    """Return the vector of integers with noise on them, in steps of a query's grid."""
    cap = largest_cap(clients, 64)
    return VectorSpec(name=ANSWER, encoding="signed", length=cells, ring_bits=64, scale_bits=0, cap=cap)


def vectors_of(settings: StudySettings, model: Spec, clients: int) -> tuple[VectorSpec, ...]:
    """Return the vectors of one session of `clients` planned clients, empty without masking.

    Args:
        settings: at the clip norm of the round.

    Raises:
        ParameterFault: clip norm or noise so large or small that updates do not fit the ring. It names the setting.
    """
    privacy = settings.privacy
    if privacy.masking is None:
        return ()
    vectors = [_update(settings, model, clients)] if privacy.masking.mask_updates else []
    if privacy.bayesian is not None:
        vectors += _log_moments(privacy, clients)
    if sums_as_in_papers(privacy):
        orders = 0 if privacy.bayesian is None else len(privacy.bayesian.orders)
        vectors += [cost_vector(PAPERS, orders, clients), cost_vector(METRICS, 1, clients)]
    return tuple(vectors)


def sums_as_in_papers(privacy: Privacy) -> bool:
    """Return whether the papers' sequential costs are summed: raw, and so in plain disclosure only."""
    return privacy.rules.sums_costs_as_in_papers and privacy.bayesian is not None and privacy.disclosure == "plain"


def histogram_name(scheme: Scheme) -> str | None:
    """Return the vector that holds the histogram of the clients' distances, if the scheme counts clients."""
    if not scheme.counts_clients:
        return None
    return CLIENT_TERMS if Level.INSTANCE in scheme.levels else TERMS


def _update(settings: StudySettings, model: Spec, clients: int) -> VectorSpec:
    privacy, size = settings.privacy, coordinates(settings.privacy.sent(model))
    if (noise := privacy.noise_of_updates(size)) is not None:
        # The grid of the central noise, so that the sum is already on it and no value is rounded twice.
        spacing = noise.spacing
        # One word may hold the whole norm, 1 for its rounding, and a share of the noise.
        cap = math.ceil(privacy.clip_norm / spacing) + 1
        if privacy.rules.divides_noise:
            if noise.fault is not None:
                raise ParameterFault("unsound-vector", f"noise_multiplier: {noise.fault}")
            cap += noise.longest_share
        # Half the bytes on the wire, wherever the sum cannot wrap.
        ring = 32 if cap <= largest_cap(clients, 32) else 64
    else:
        # Noised at the hospital: rounding is post-processing. 64 bits bear any update.
        std = privacy.noise_multiplier * privacy.clip_norm / privacy.expected_batch_size
        spacing, ring = 2.0 ** math.floor(math.log2(std) - GRID_BITS), 64
        cap = largest_cap(clients, 64)
    bits = -round(math.log2(spacing))
    if not 0 <= bits <= 48 or cap > largest_cap(clients, 64):
        detail = "clip_norm or noise_multiplier: updates of this scale do not fit the masks"
        raise ParameterFault("unsound-vector", detail)
    return VectorSpec(name=UPDATE, encoding="signed", length=size, ring_bits=ring, scale_bits=bits, cap=cap)


def _log_moments(privacy: Privacy, clients: int) -> list[VectorSpec]:
    histogram = histogram_name(privacy.rules)
    vectors: list[VectorSpec] = []
    if privacy.estimates_records and privacy.bayesian is not None:
        length = 1 + len(privacy.bayesian.orders)
        vectors.append(maximum_vector(TERMS, length, _MOMENTS))
    if histogram is not None and limit_among(privacy.limit_plans, Level.CLIENT, Definition.BAYESIAN) is not None:
        vectors.append(count_vector(histogram, DISTANCE_BINS, clients, noised=privacy.histogram_noise is not None))
    return vectors


def coordinates(model: Spec) -> int:
    """Return the number of parameters."""
    return sum(math.prod(shape) for shape, _ in model.values())


def flatten(tensors: Mapping[str, Array], model: Spec) -> NDArray[np.float64]:
    """Return the parameters in order of their names, shape (coordinates,)."""
    return np.concatenate([tensors[name].reshape(-1).astype(np.float64) for name in sorted(model)])


def unflatten(values: NDArray[np.float64], model: Spec) -> dict[str, NDArray[np.float64]]:
    """Return the inverse of `flatten` as views of `values`."""
    tensors: dict[str, NDArray[np.float64]] = {}
    start = 0
    for name in sorted(model):
        shape, size = model[name][0], math.prod(model[name][0])
        tensors[name] = values[start : start + size].reshape(shape)
        start += size
    return tensors
