"""The cost of this hospital's records so far, as two upper bounds that may leave it.

Every local step measures the gradient norm of every record of the accounting sample, sampled or not, because every
step adds to every record's running sum (or to the Hölder sum). Only the estimates over all of them leave, rounded up,
and never a norm. Under disclosure `noised` they come from noised histograms, and what leaves is a function of those
alone.

The accounting sample is all of a hospital's records, or drawn once, fixed, and remembered by digest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from accounting.accountants.bayesian import BayesianAccountant
from accounting.accountants.bayesian_spec import BayesianSpec
from accounting.accountants.noised_sums import BINS, NoisedSums
from accounting.plan.limits import BayesianPlan
from accounting.plan.plan import Plan
from accounting.units import Definition, Level
from client_sdk.errors import ConfigurationError, LedgerDamaged, Refused, TrainingStopped
from study_protocol.randomness.discrete_gaussian import sampler
from study_protocol.randomness.source import RandomSource, SecureSource
from study_protocol.secure_sum.parameters import sums_as_in_papers
from study_protocol.study.plan_of import plan_of
from study_protocol.study.privacy import AccountingSample
from study_protocol.study.settings import StudySettings
from study_protocol.wire.tensors import TERMS, Array

Rows = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
# Per-record norms are sums in float32. This covers their rounding, as the clip factors do.
_NORM_SLACK = 1 + 2.0**-14
_DAMAGED = "the running sums on this disk are damaged or of another study"


@dataclass(frozen=True, repr=False)
class SampleRows:
    """The accounting sample among today's records.

    rows     of the training data that are measured
    slots    of each of them in the accounting sample
    trained  rows that are trained on: all, but those held out
    """

    rows: Rows
    slots: Rows
    trained: Rows


@dataclass(frozen=True, repr=False)
class SampledRecords:
    """The accounting sample, fixed before the first round. A slot whose record is gone, or never was, counts at the
    clip norm.

    digests  of the records drawn, in the order of their slots
    setting  the study's setting. None: every record of the first round, and none may join later
    """

    digests: tuple[str, ...]
    setting: AccountingSample | None

    @classmethod
    def draw(cls, setting: AccountingSample | None, patients: Sequence[str], source: RandomSource) -> SampledRecords:
        """Draw uniformly without repetition. Of fewer patients than slots, all are drawn.

        Raises:
            ConfigurationError: the held-out sample would leave no record to train on. Stays in this building.
        """
        digests = [patient_digest(patient) for patient in patients]
        if setting is None:
            return cls(tuple(digests), None)
        if setting.source == "held-out" and len(digests) <= setting.records:
            raise ConfigurationError(
                f"accounting sample: {setting.records} records are held out of training and this data set has "
                f"{len(digests)}: do not take part in this study"
            )
        # 128 random bits each: two alike among a billion are less likely than 2^-68.
        order = np.lexsort((source.words(len(digests), np.uint64), source.words(len(digests), np.uint64)))
        return cls(tuple(digests[int(row)] for row in order[: setting.records]), setting)

    @property
    def size(self) -> int:
        """Return the number of slots, which is public where the study sets it."""
        return len(self.digests) if self.setting is None else self.setting.records

    def rows_of(self, patients: Sequence[str]) -> SampleRows:
        """Return the rows of the accounting sample's records among these.

        Raises:
            Refused: `records-added` where every record is measured, because the past of a new one would be unknown.
        """
        slot = {digest: i for i, digest in enumerate(self.digests)}
        patient_slots = [slot.get(patient_digest(patient), -1) for patient in patients]
        slots = np.array(patient_slots, dtype=np.int64)
        rows = np.flatnonzero(slots >= 0).astype(np.int64)
        if self.setting is None and rows.size < slots.size:
            raise Refused(
                "records-added",
                "records were added since the first round: leave them out, or take them into a new study",
            )
        held_out = self.setting is not None and self.setting.source == "held-out"
        # Who joined after the draw is trained on: the sample stays as it was drawn.
        trained = np.flatnonzero(slots < 0) if held_out else np.arange(slots.size)
        return SampleRows(rows, slots[rows], trained.astype(np.int64))


class LogMomentBounds:
    """The hospital's own cumulative log-moment bounds in one study with a Bayesian limit at instance level.

    settings  of the study, which fix everything about the estimate
    patients  identifiers of the records in training order
    source    draws the accounting sample in the first round. None: the operating system's generator
    accounting_sample  the one drawn before

    A record of the accounting sample that is no longer there is charged at the clip norm.

    Raises:
        ConfigurationError: a held-out accounting sample would leave no record to train on.
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
        privacy, plan = settings.privacy, plan_of(settings)
        if plan.bayesian is None:
            raise ValueError("settings: this study has no Bayesian limit")
        step = plan.mechanism(Level.INSTANCE)
        self._settings, self._patients, self._plan = settings, patients, plan
        self._step: dict[str, Any] = {
            "noise_std": step.noise_std,
            "sampling_rate": step.sampling_rate,
            "max_distance": step.clip_norm,
        }
        self._sample = accounting_sample or SampledRecords.draw(
            privacy.accounting_sample, patients, source or SecureSource()
        )
        self._rows = self._sample.rows_of(patients)
        self._account = _account(plan, plan.bayesian, self._sample.size)
        papers = sums_as_in_papers(privacy)
        self._papers = BayesianAccountant(_as_in_papers(plan, plan.bayesian)) if papers else None
        self._paper_costs = np.zeros(len(plan.bayesian.orders))

    @classmethod
    def open(
        cls,
        settings: StudySettings,
        patients: Sequence[str],
        saved: bytes | None,
        *,
        rounds_lost: int,
        source: RandomSource,
    ) -> Self | None:
        """Return the bounds as they were saved, or new ones, or None where records have no Bayesian limit.

        rounds_lost  rounds of which no norms are known: new bounds begin with all of them at the clip norm

        Raises:
            As the constructor and `restore`.
            Refused: `held-out-lost`: who was held out in the lost rounds is not known any more.
        """
        if not settings.privacy.estimates_records:
            return None
        if saved is not None:
            return cls.restore(settings, patients, saved)
        begun = cls(settings, patients, source)
        begun.charge_lost_rounds(rounds_lost)
        return begun

    @classmethod
    def restore(cls, settings: StudySettings, patients: Sequence[str], saved: bytes) -> Self:
        """The log-moments as `to_bytes` saved them.

        Raises:
            Refused: `records-added`.
            LedgerDamaged: not saved by `to_bytes` under the same settings.
        """
        sample, state = _state_of(settings, saved)
        restored = cls(settings, patients, accounting_sample=sample)
        restored._load(state)
        return restored

    def resume(self, saved: bytes) -> None:
        """Go on from what `to_bytes` gave in the same study, for the same patients.

        Raises:
            As `restore`.
        """
        sample, state = _state_of(self._settings, saved)
        if sample != self._sample:
            self._sample, self._rows = sample, sample.rows_of(self._patients)
        self._load(state)

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
            for _ in range(self._plan.steps_per_round):
                self._account.step(None, **self._step)
                if self._papers is not None:
                    self._papers.step(None, **self._own_step(None))
            if (sums := self._published(round)) is not None:
                # It may have left, so it is paid for.
                sums.publish(None)

    def measure(self, norms: npt.NDArray[np.float64], *, rounding: float, total_records: float | None = None) -> None:
        """One noised step.

        norms     (rows,) gradient norms before clipping, of `rows` in their order. ∞ or NaN counts at the clip norm
        rounding  L2 norm that rounding to the noise's grid can add to a contribution
        total_records  N of all clients, for the papers' sequential costs. None: their q is this hospital's own
        """
        clip = self._plan.clip_norm
        # An empty slot counts at the clip norm: nobody outside may see that it is empty.
        distances = np.full(self._sample.size, clip)
        distances[self._rows.slots] = accounted(norms, clip_norm=clip, rounding=rounding)
        self._account.step(distances, **self._step)
        if self._papers is not None:
            before = self._papers.log_moments()
            self._papers.step(distances, **self._own_step(total_records))
            self._paper_costs = self._papers.log_moments() - before

    def publish(self, round_number: int, source: RandomSource) -> None:
        """Read the accounting sample through fresh noise after the last step of a declared checkpoint.

        source: of the noise on its (BINS,) counts.
        """
        release, sums = self._plan.release, self._published(round_number)
        if release is not None and sums is not None:
            sums.publish(sums.histogram() + sampler(release.std).sample(BINS, source))

    def losses(self) -> Floats:
        """Return the loss of each of `rows` as a share of the most it can be. Before any step: 1.

        Raises:
            Refused: `no-distances`: this study does not keep a sum for every record.
        """
        account = self._account
        if isinstance(account, NoisedSums) or self._sample.setting is not None or account.spec.composition != "running":
            raise Refused("no-distances", "this study keeps no running sum of every patient")
        shares = account.filter_shares()
        return np.ones(self._rows.rows.size) if shares is None else shares[self._rows.slots]

    def paper_costs(self) -> npt.NDArray[np.float64]:
        """The last step's cost at q = B_i/N, nats at every order of the statement, as in the papers, rounded up."""
        return np.nextafter(np.maximum(self._paper_costs, 0.0), np.inf)

    def tensors(self) -> dict[str, Array]:
        """`log-moments/filter` (1,) and `log-moments/moments` (orders,), float64 nats, rounded up.

        Raises:
            TrainingStopped: a bound is not finite. An order this high cannot be reported under so little noise.
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
        """Return all state that must survive, with record identifiers only as digests."""
        papers = None if self._papers is None else self._papers.state()
        saved = {"accounting_sample": list(self._sample.digests), "account": self._account.state(), "papers": papers}
        return json.dumps(saved, allow_nan=False).encode()

    def _load(self, state: dict[str, Any]) -> None:
        try:
            self._account.restore(state["account"])
            if self._papers is not None:
                self._papers.restore(state["papers"])
        except (ValueError, KeyError, TypeError) as error:
            raise LedgerDamaged(_DAMAGED) from error

    def _published(self, round_number: int) -> NoisedSums | None:
        """Return the sums that are read through noise after this round, or None where this round publishes none."""
        sums = self._account
        return (
            sums if isinstance(sums, NoisedSums) and self._plan.publishes(round_number) and not sums.exhausted else None
        )

    def _own_step(self, total_records: float | None) -> dict[str, Any]:
        """The step of sequential accounting (Triastcyn & Faltings 2019, section V-B1): the client's own noise alone,
        records sampled at B_i/N."""
        plan = self._plan
        rate = plan.sampling_rate
        if total_records is not None and total_records > 0:
            # q_i = B_i/N_i of this hospital becomes B_i/N.
            rate *= min(1.0, len(self.trained) / total_records)
        return self._step | {"noise_std": plan.noise_multiplier * plan.clip_norm, "sampling_rate": rate}


def accounted(norms: Floats, *, clip_norm: float, rounding: float) -> Floats:
    """The distances that are accounted, from gradient norms: never below what a record moved the noised sum.

    For noise of noise_multiplier · clip_norm. They are rounded up, and at most clip_norm.

    norms     before clipping. Clipped together or layer by layer, a record adds at most min(norm, clip_norm). ∞ or NaN,
              of a record without a gradient, counts at the clip norm
    rounding  L2 norm that rounding to the noise's grid can add to a contribution. The noise covers clip_norm + rounding
    """
    # Capped first: clipping bounds the contribution, and the grid moves it afterwards.
    contribution = np.fmin(norms * _NORM_SLACK, clip_norm) + rounding
    # Scaling both back to the clip norm keeps their ratio, and the top stays it.
    scaled = np.nextafter(contribution * (clip_norm / (clip_norm + rounding)), np.inf)
    return np.minimum(scaled, clip_norm)


def _state_of(settings: StudySettings, saved: bytes) -> tuple[SampledRecords, dict[str, Any]]:
    """The accounting sample and everything else, out of what `to_bytes` gave."""
    try:
        state: dict[str, Any] = json.loads(saved)
        sample = SampledRecords(tuple(state["accounting_sample"]), settings.privacy.accounting_sample)
        if len(sample.digests) > sample.size:
            raise ValueError("more records than places")
    except (ValueError, KeyError, TypeError) as error:
        raise LedgerDamaged(_DAMAGED) from error
    return sample, state


def _account(plan: Plan, bayesian: BayesianPlan, records: int) -> BayesianAccountant | NoisedSums:
    checkpoints: int | list[int] | None = None
    if plan.release is not None:
        checkpoints = max(1, plan.rounds // plan.release.every)
    elif bayesian.composition == "running":
        # Read at the end of every round, and declared: each reading takes its share of the failure probability.
        checkpoints = [plan.steps_per_round * (i + 1) for i in range(plan.rounds)]
    spec = replace(
        _as_in_papers(plan, bayesian),
        composition=bayesian.composition,
        adversary=bayesian.adversary,
        sample=bayesian.sample,
        filter_order=bayesian.filter_order,
        checkpoints=checkpoints,
    )
    if plan.release is not None:
        return NoisedSums(spec, records=records, noise_std=plan.release.std)
    return BayesianAccountant(spec)


def _as_in_papers(plan: Plan, bayesian: BayesianPlan) -> BayesianSpec:
    """Return the papers' costs as the limit for records fixes them. This hospital's own costs add to them."""
    limit = plan.limit(Level.INSTANCE, Definition.BAYESIAN)
    if limit is None:
        raise ValueError("settings: this study has no Bayesian limit at instance level")
    return BayesianSpec(
        orders=bayesian.orders,
        delta=limit.delta,
        estimator_failure_probability=limit.estimator_failure_probability or 0.0,
        max_steps=plan.max_steps,
        estimator=bayesian.estimator,
        conversion=bayesian.conversion,
    )


def patient_digest(patient: str) -> str:
    """Return the digest that stands for a patient on this disk."""
    return hashlib.sha256(b"wardround/1/patient" + patient.encode()).hexdigest()
