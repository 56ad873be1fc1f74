"""What the records of this hospital have cost so far, as two upper bounds that may leave it.

Every local step measures the gradient norm of every record, sampled or not, because every step adds to every record's
running sum (or to the Hölder sum). Only the estimates over all records leave, rounded up; never a norm.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from accounting.bayesian import BayesianAccountant
from client_sdk.errors import LedgerDamaged, Refused, TrainingStopped
from client_sdk.own_budget import sure_noise
from client_sdk.protocol.session_vectors import sums_as_in_papers
from client_sdk.protocol.settings import Privacy, StudySettings
from client_sdk.protocol.tensors import TERMS, Array

# Per-record norms are sums in float32; this covers their rounding, as the clip factors do.
_NORM_SLACK = 1 + 2.0**-14


class PrivacyTerms:
    """The hospital's own cumulative log-moment bounds in one study with a Bayesian limit at instance level.

    settings  of the study; the panel and everything else about the estimate are fixed by them
    patients  identifiers of the records in training order: the panel, fixed by the first round

    A record of the panel that is no longer trained on is charged at the clip norm; a record that joined later is
    refused, because its past would be unknown.
    """

    def __init__(self, settings: StudySettings, patients: Sequence[str]) -> None:
        privacy = settings.privacy
        if privacy.bayesian is None:
            raise ValueError("settings: this study has no Bayesian limit")
        delta, failure = _instance_limit(privacy)
        self._privacy, self._bayesian = privacy, privacy.bayesian
        self._steps_per_round = settings.steps_per_round
        running = self._bayesian.composition == "running"
        self._account = BayesianAccountant(
            orders=self._bayesian.orders,
            delta=delta,
            failure=failure,
            horizon=privacy.horizon,
            composition=self._bayesian.composition,
            estimator=self._bayesian.estimator,
            adversary=self._bayesian.adversary,
            conversion=self._bayesian.conversion,
            filter_order=self._bayesian.filter_order,
            checkpoints=[self._steps_per_round * (i + 1) for i in range(settings.rounds)] if running else None,
        )
        self._papers = self._as_in_papers(delta, failure) if sums_as_in_papers(privacy) else None
        self._paper_costs = np.zeros(len(self._bayesian.orders))
        self._panel = [_digest(patient) for patient in patients]
        self._rows = np.arange(len(self._panel))

    @classmethod
    def restore(cls, settings: StudySettings, patients: Sequence[str], saved: bytes) -> Self:
        """The terms as `to_bytes` saved them.

        Raises:
            Refused: `records-added`.
            LedgerDamaged: not saved by `to_bytes` under the same settings.
        """
        terms = cls(settings, patients)
        try:
            state: dict[str, Any] = json.loads(saved)
            place = {digest: row for row, digest in enumerate(state["panel"])}
            terms._account.restore(state["account"])
            if terms._papers is not None:
                terms._papers.restore(state["papers"])
        except (ValueError, KeyError, TypeError) as error:
            raise LedgerDamaged("the running sums on this disk are damaged or of another study") from error
        added = sum(digest not in place for digest in terms._panel)
        if added:
            raise Refused(
                "records-added",
                "records were added since the first round: leave them out, or take them into a new study",
            )
        terms._rows = np.array([place[digest] for digest in terms._panel], dtype=np.int64)
        terms._panel = state["panel"]
        return terms

    def charge_lost_rounds(self, rounds: int) -> None:
        """Charge rounds of which no norms are known: every record at the clip norm."""
        for _ in range(rounds * self._steps_per_round):
            self._account.step(None, **self._mechanism())
            if self._papers is not None:
                self._papers.step(None, **self._own_mechanism(None))

    def measure(self, norms: npt.NDArray[np.float64], *, rounding: float, total_records: float | None = None) -> None:
        """One noised step.

        norms     (records,) gradient norms before clipping, of every record in training order
        rounding  L2 norm that rounding to the noise's grid can add to a contribution
        total_records  N of all clients, for the papers' sequential costs; unknown: their q is this hospital's own

        Raises:
            TrainingStopped: NaN or an infinity among the norms; nothing is charged.
        """
        if not np.isfinite(norms).all():
            raise TrainingStopped("the gradient norms of this hospital's records")
        clip = self._privacy.clip_norm
        # The noise covers clip + rounding. Scaling both back to the clip norm keeps their ratio, and the top stays it.
        contribution = np.minimum(norms * _NORM_SLACK, clip) + rounding
        scaled = np.nextafter(contribution * (clip / (clip + rounding)), np.inf)
        distances = np.full(len(self._panel), clip)
        distances[self._rows] = np.minimum(scaled, clip)
        self._account.step(distances, **self._mechanism())
        if self._papers is not None:
            before = self._papers.log_moments()
            self._papers.step(distances, **self._own_mechanism(total_records))
            self._paper_costs = self._papers.log_moments() - before

    def paper_costs(self) -> npt.NDArray[np.float64]:
        """The last step's cost at q = B_i/N, nats at every order of the report, as in the papers; rounded up."""
        return np.nextafter(np.maximum(self._paper_costs, 0.0), np.inf)

    def tensors(self) -> dict[str, Array]:
        """`terms/filter` (1,) and `terms/moments` (orders,), float64 nats, rounded up.

        Raises:
            TrainingStopped: a bound is not finite; an order this high cannot be reported under so little noise.
        """
        values = {
            TERMS + "filter": np.array([self._account.filter_moment()]),
            TERMS + "moments": self._account.log_moments(),
        }
        for name, value in values.items():
            if not np.isfinite(value).all():
                raise TrainingStopped(name)
        return {name: np.nextafter(value, np.inf) for name, value in values.items()}

    def to_bytes(self) -> bytes:
        """Everything that must survive; record identifiers only as digests."""
        papers = None if self._papers is None else self._papers.state()
        saved = {"panel": self._panel, "account": self._account.state(), "papers": papers}
        return json.dumps(saved, allow_nan=False).encode()

    def _as_in_papers(self, delta: float, failure: float) -> BayesianAccountant:
        return BayesianAccountant(
            orders=self._bayesian.orders,
            delta=delta,
            failure=failure,
            horizon=self._privacy.horizon,
            composition="holder",
            estimator=self._bayesian.estimator,
            conversion=self._bayesian.conversion,
        )

    def _own_mechanism(self, total_records: float | None) -> dict[str, Any]:
        """The papers' step: the client's own noise alone, records sampled at B_i/N."""
        privacy = self._privacy
        rate = privacy.sampling_rate
        if total_records is not None and total_records > 0:
            rate *= min(1.0, len(self._rows) / total_records)
        std = privacy.noise_multiplier * privacy.clip_norm
        return {"noise_std": std, "sampling_rate": rate, "max_distance": privacy.clip_norm}

    def _mechanism(self) -> dict[str, Any]:
        privacy = self._privacy
        return {
            "noise_std": sure_noise(privacy),
            "sampling_rate": privacy.sampling_rate,
            "max_distance": privacy.clip_norm,
        }


def _digest(patient: str) -> str:
    return hashlib.sha256(b"wardround/1/patient" + patient.encode()).hexdigest()


def _instance_limit(privacy: Privacy) -> tuple[float, float]:
    """(delta, failure) of the Bayesian limit that speaks for records."""
    for limit in privacy.limits:
        if limit.level == "instance" and limit.failure is not None:
            return limit.delta, limit.failure
    raise ValueError("settings: this study has no Bayesian limit at instance level")
