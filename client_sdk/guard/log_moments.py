"""What the records of this hospital have cost so far, as two upper bounds that may leave it.

Every local step measures the gradient norm of every record of the accounting sample, sampled or not, because every
step adds to
every record's running sum (or to the Hölder sum). Only the estimates over all of them leave, rounded up; never a norm.
Under disclosure `noised` they come from noised histograms, and what leaves is a function of those alone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from accounting.accountants.bayesian import BayesianAccountant
from accounting.accountants.noised_sums import BINS, NoisedSums
from client_sdk.errors import LedgerDamaged, Refused, TrainingStopped
from client_sdk.guard.accounting_sample import Rows, SampledRecords
from client_sdk.guard.distances import accounted
from client_sdk.guard.own_budget import guaranteed_noise_std
from client_sdk.protocol.randomness.discrete_gaussian import sampler
from client_sdk.protocol.randomness.source import RandomSource, SecureSource
from client_sdk.protocol.secure_sum.layout import sums_as_in_papers
from client_sdk.protocol.study.settings import BayesianSettings, Privacy, StudySettings
from client_sdk.protocol.wire.tensors import TERMS, Array


class LogMomentBounds:
    """The hospital's own cumulative log-moment bounds in one study with a Bayesian limit at instance level.

    settings  of the study, which fix everything about the estimate
    patients  identifiers of the records in training order
    source    draws the accounting sample in the first round; None: the operating system's generator
    accounting_sample     the one drawn before

    A record of the accounting sample that is no longer there is charged at the clip norm.

    Raises:
        ConfigurationError: a held-out accounting sample would leave nothing to train on.
        Refused: `records-added`, where every record is measured.
    """

    def __init__(
        self,
        settings: StudySettings,
        patients: Sequence[str],
        source: RandomSource | None = None,
        *,
        accounting_sample: SampledRecords | None = None,
    ) -> None:
        privacy = settings.privacy
        if privacy.bayesian is None:
            raise ValueError("settings: this study has no Bayesian limit")
        self._settings, self._privacy = settings, privacy
        self._sample = accounting_sample or SampledRecords.draw(
            privacy.accounting_sample, patients, source or SecureSource()
        )
        self._rows = self._sample.rows_of(patients)
        self._account = _account(settings, privacy.bayesian, self._sample.size)
        self._papers = _as_in_papers(privacy, privacy.bayesian) if sums_as_in_papers(privacy) else None
        self._paper_costs = np.zeros(len(privacy.bayesian.orders))

    @classmethod
    def restore(cls, settings: StudySettings, patients: Sequence[str], saved: bytes) -> Self:
        """The log-moments as `to_bytes` saved them.

        Raises:
            Refused: `records-added`.
            LedgerDamaged: not saved by `to_bytes` under the same settings.
        """
        try:
            state: dict[str, Any] = json.loads(saved)
            accounting_sample = SampledRecords(tuple(state["accounting_sample"]), settings.privacy.accounting_sample)
            if len(accounting_sample.digests) > accounting_sample.size:
                raise ValueError("more records than places")
            log_moments = cls(settings, (), accounting_sample=accounting_sample)
            log_moments._account.restore(state["account"])
            if log_moments._papers is not None:
                log_moments._papers.restore(state["papers"])
        except (ValueError, KeyError, TypeError) as error:
            raise LedgerDamaged("the running sums on this disk are damaged or of another study") from error
        log_moments._rows = accounting_sample.rows_of(patients)
        return log_moments

    @property
    def rows(self) -> Rows:
        """Rows of the training data whose norms `measure` takes, in this order."""
        return self._rows.rows

    @property
    def trained(self) -> Rows:
        """Rows of the training data that may be trained on: all, but a held-out accounting sample's."""
        return self._rows.trained

    def charge_lost_rounds(self, rounds: int) -> None:
        """Charge rounds of which no norms are known: every record at the clip norm.

        Raises:
            Refused: `held-out-lost`: who was held out in those rounds is not known any more.
        """
        accounting_sample = self._sample.setting
        if rounds and accounting_sample is not None and accounting_sample.source == "held-out":
            raise Refused("held-out-lost", "the ledger that says which records were held out is lost")
        for round in range(1, rounds + 1):
            for _ in range(self._settings.steps_per_round):
                self._account.step(None, **self._mechanism())
                if self._papers is not None:
                    self._papers.step(None, **self._own_mechanism(None))
            if isinstance(self._account, NoisedSums) and self._publishes(round):
                self._account.publish(None)

    def measure(self, norms: npt.NDArray[np.float64], *, rounding: float, total_records: float | None = None) -> None:
        """One noised step.

        norms     (rows,) gradient norms before clipping, of `rows` in their order
        rounding  L2 norm that rounding to the noise's grid can add to a contribution
        total_records  N of all clients, for the papers' sequential costs; unknown: their q is this hospital's own

        Raises:
            TrainingStopped: NaN or an infinity among the norms; nothing is charged.
        """
        if not np.isfinite(norms).all():
            raise TrainingStopped("the gradient norms of this hospital's records")
        clip = self._privacy.clip_norm
        distances = np.full(self._sample.size, clip)
        distances[self._rows.slots] = accounted(norms, clip_norm=clip, rounding=rounding)
        self._account.step(distances, **self._mechanism())
        if self._papers is not None:
            before = self._papers.log_moments()
            self._papers.step(distances, **self._own_mechanism(total_records))
            self._paper_costs = self._papers.log_moments() - before

    def publish(self, round: int, source: RandomSource) -> None:
        """After the last step of `round`: at a declared checkpoint, read the accounting sample through fresh noise."""
        noise = self._privacy.histogram_noise
        if noise is not None and isinstance(self._account, NoisedSums) and self._publishes(round):
            self._account.publish(self._account.histogram() + sampler(noise.std).sample(BINS, source))

    def paper_costs(self) -> npt.NDArray[np.float64]:
        """The last step's cost at q = B_i/N, nats at every order of the statement, as in the papers; rounded up."""
        return np.nextafter(np.maximum(self._paper_costs, 0.0), np.inf)

    def tensors(self) -> dict[str, Array]:
        """`log-moments/filter` (1,) and `log-moments/moments` (orders,), float64 nats, rounded up.

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
        saved = {"accounting_sample": list(self._sample.digests), "account": self._account.state(), "papers": papers}
        return json.dumps(saved, allow_nan=False).encode()

    def _publishes(self, round: int) -> bool:
        noise, account = self._privacy.histogram_noise, self._account
        due = noise is not None and round % noise.every == 0
        return due and isinstance(account, NoisedSums) and not account.exhausted

    def _own_mechanism(self, total_records: float | None) -> dict[str, Any]:
        """The papers' step: the client's own noise alone, records sampled at B_i/N."""
        privacy = self._privacy
        rate = privacy.sampling_rate
        if total_records is not None and total_records > 0:
            rate *= min(1.0, len(self.trained) / total_records)
        std = privacy.noise_multiplier * privacy.clip_norm
        return {"noise_std": std, "sampling_rate": rate, "max_distance": privacy.clip_norm}

    def _mechanism(self) -> dict[str, Any]:
        privacy = self._privacy
        return {
            "noise_std": guaranteed_noise_std(privacy),
            "sampling_rate": privacy.sampling_rate,
            "max_distance": privacy.clip_norm,
        }


def _account(settings: StudySettings, bayesian: BayesianSettings, records: int) -> BayesianAccountant | NoisedSums:
    privacy, (delta, estimator_failure_probability) = settings.privacy, _instance_limit(settings.privacy)
    if privacy.histogram_noise is not None:
        return NoisedSums(
            orders=bayesian.orders,
            filter_order=bayesian.filter_order,
            estimator_failure_probability=estimator_failure_probability,
            adversary=bayesian.adversary,
            estimator=bayesian.estimator,
            checkpoints=max(1, settings.rounds // privacy.histogram_noise.every),
            records=records,
            noise_std=privacy.histogram_noise.std,
        )
    running = bayesian.composition == "running"
    return BayesianAccountant(
        orders=bayesian.orders,
        delta=delta,
        estimator_failure_probability=estimator_failure_probability,
        max_steps=privacy.max_steps,
        composition=bayesian.composition,
        estimator=bayesian.estimator,
        adversary=bayesian.adversary,
        conversion=bayesian.conversion,
        sample="members" if privacy.accounting_sample is None else privacy.accounting_sample.source,
        filter_order=bayesian.filter_order,
        checkpoints=[settings.steps_per_round * (i + 1) for i in range(settings.rounds)] if running else None,
    )


def _as_in_papers(privacy: Privacy, bayesian: BayesianSettings) -> BayesianAccountant:
    delta, estimator_failure_probability = _instance_limit(privacy)
    return BayesianAccountant(
        orders=bayesian.orders,
        delta=delta,
        estimator_failure_probability=estimator_failure_probability,
        max_steps=privacy.max_steps,
        composition="holder",
        estimator=bayesian.estimator,
        conversion=bayesian.conversion,
    )


def _instance_limit(privacy: Privacy) -> tuple[float, float]:
    """(delta, failure) of the Bayesian limit that speaks for records."""
    for limit in privacy.limits:
        if limit.level == "instance" and limit.estimator_failure_probability is not None:
            return limit.delta, limit.estimator_failure_probability
    raise ValueError("settings: this study has no Bayesian limit at instance level")
