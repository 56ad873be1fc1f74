"""The privacy loss of each patient of this hospital, over all studies on one data set: an individual filter.

Every patient keeps a sum of its own and is left out of a step that could carry it past the limit: at one Rényi order
(Feldman & Zrnic 2021), or by Gaussian privacy (Koskela, Tobaben & Honkela 2023). The sums and the patients who were
left out are secrets, which never leave the hospital.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from accounting.accountants.individual import AnyFilterSpec, FilterSpec, IndividualFilter
from accounting.accountants.individual_gaussian import GaussianFilterSpec
from accounting.errors import InvalidArgument
from accounting.mechanisms.gaussian_squares import release_slack
from accounting.units import Guarantee, Observer
from client_sdk.errors import ConfigurationError, LedgerDamaged
from client_sdk.guard.charges import Charge
from client_sdk.guard.limit_terms import LimitRule
from client_sdk.guard.log_moments import accounted, patient_digest
from client_sdk.guard.policy_limits import IndividualLimit
from study_protocol.study.privacy import Privacy

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
# Fixed with the limit: what the noise sampler may add to δ over so many sums and histograms is taken off it. A hundred
# studies of the longest kind that settings allow.
MOST_RELEASES = 1_000_000_000
# Of δ, at most, for what discrete noise may add under the Gaussian rule. Fewer releases are counted for otherwise.
_NOISE_SHARE = 0.01


@dataclass(repr=False)
class IndividualBudget:
    """The patients' own sums, for one set of training records. Made by `open`.

    patients  digests of all patients who were ever counted, in the order of the filter
    rows      place of each training record among them
    before    what a patient who appears only now is charged: rounds that left without being counted, at their worst
    entries   of the hospital's ledger, whose rounds are counted
    """

    limit: IndividualLimit
    filter: IndividualFilter
    patients: list[str]
    rows: Rows
    before: float
    entries: int

    @classmethod
    def open(
        cls,
        limit: IndividualLimit,
        saved: bytes | None,
        patients: Sequence[str],
        *,
        entries: int,
        sent_since: Callable[[int], Sequence[Charge]],
    ) -> Self:
        """The sums as they were saved, or new ones.

        patients    of the training records, in their order, each once
        entries     in the hospital's ledger now
        sent_since  charges of the rounds that left in entries after a given one. Rounds that left without being counted
                    here, because no limit was kept or the ledger was lost, are charged to every patient at the clip
                    norm

        Raises:
            ConfigurationError: the sums were begun under another limit, or what has left already may pass this one.
            LedgerDamaged: not saved by `to_bytes`.
        """
        state = _read(limit, saved)
        stored, inner, before = list[str](state["patients"]), dict[str, Any](state["filter"]), float(state["before"])
        uncounted, spec = sent_since(state["entries"]), spec_of(limit, rule_of(limit, saved))
        missed = sum(worst_cost(charge, spec) for charge in uncounted)
        digests = [patient_digest(patient) for patient in patients]
        # Who is not there today keeps a sum: a patient may come back.
        everybody = list(dict.fromkeys([*stored, *digests]))
        new = len(everybody) - len(stored)
        inner["spent"] = [spent + missed for spent in inner["spent"]] + [before + missed] * new
        inner["excluded"] = [*inner["excluded"], *([False] * new)]
        # A histogram is a noised release like a step.
        inner["steps"] += sum(charge.steps + charge.histograms for charge in uncounted)
        try:
            filter = IndividualFilter.restore(inner)
        except InvalidArgument as error:
            raise ConfigurationError(
                f"individual: rounds that left without being counted may have cost more than epsilon {limit.epsilon:g}"
            ) from error
        place = {digest: i for i, digest in enumerate(everybody)}
        rows = np.array([place[digest] for digest in digests], dtype=np.int64)
        return cls(limit, filter, everybody, rows, before + missed, entries)

    def resume(self, saved: bytes) -> None:
        """Go on from the sums of the same patients that `to_bytes` gave later in the round.

        Raises:
            LedgerDamaged: not saved by `to_bytes`.
        """
        try:
            self.filter = IndividualFilter.restore(_read(self.limit, saved)["filter"])
        except InvalidArgument as error:
            raise LedgerDamaged("the patients' own sums on this disk are damaged") from error

    @property
    def needs_every_norm(self) -> bool:
        """Whether each step measures the records that were not drawn as well."""
        return self.limit.every_norm and not self.charges_only_drawn

    @property
    def charges_only_drawn(self) -> bool:
        """Whether a step charges the records that are in it and no others: at rate 1, without credit for sampling."""
        return isinstance(self.filter.spec, GaussianFilterSpec)

    def admitted(self, rows: Rows, privacy: Privacy) -> Rows:
        """Return those of `rows`, the sampled records, that may take part in the next step, for any gradients of
        theirs."""
        room = self.filter.has_room(**self._mechanism(privacy))
        return rows[room[self.rows[rows]]]

    def charge(self, rows: Rows, norms: Floats, privacy: Privacy, *, rounding: float) -> None:
        """One noised step in which only `admitted` records took part.

        rows      records whose gradient norms were computed, among them all that took part
        norms     their norms, before clipping. ∞ of a record without a gradient, which is charged at the clip norm
        rounding  as in `accounted`

        Records of unknown norm are charged at the clip norm, times the credit for having been drawn with probability
        sampling_rate. At rate 1, and where only the drawn are charged, they took no part. A patient who had no room is
        out for good. A patient who is not among today's records is not charged.
        """
        distances = np.zeros(self.filter.members)
        # Who is not among today's records moved nothing: measured, at distance 0.
        measured = np.ones(self.filter.members, dtype=np.bool_)
        measured[self.rows] = False
        measured[self.rows[rows]] = True
        distances[self.rows[rows]] = accounted(norms, clip_norm=privacy.clip_norm, rounding=rounding)
        # Whom the coins of earlier steps left out must stay out, also of cheaper steps: the filter then refuses them.
        closed = self.rows[~self.filter.has_room(**self._mechanism(privacy))[self.rows]]
        measured[closed], distances[closed] = True, privacy.clip_norm
        self.filter.admit(distances[measured], measured=measured, **self._mechanism(privacy))

    def room_for(self, query: Charge) -> Bools:
        """(rows,) who of the records may still be in the sum of such a query."""
        room = self.filter.has_room(noise_std=query.noise_multiplier, sampling_rate=1.0, max_distance=1.0)
        return room[self.rows]

    def charge_query(self, query: Charge) -> None:
        """A query at rate 1, at its whole cost for every record of today that had room."""
        measured = np.zeros(self.filter.members, dtype=np.bool_)
        measured[self.rows] = True
        distances = np.ones(int(measured.sum()))
        self.filter.admit(
            distances, measured=measured, noise_std=query.noise_multiplier, sampling_rate=1.0, max_distance=1.0
        )

    def _mechanism(self, privacy: Privacy) -> dict[str, Any]:
        return {
            "noise_std": privacy.noise_multiplier * privacy.clip_norm,
            "sampling_rate": 1.0 if self.charges_only_drawn else privacy.sampling_rate,
            "max_distance": privacy.clip_norm,
        }

    def to_bytes(self, *, entries: int | None = None) -> bytes:
        """Return all state that must survive, with patients only as digests.

        entries  of the ledger once this is committed, where that counts a further round
        """
        saved = {
            "patients": self.patients,
            "before": self.before,
            "entries": self.entries if entries is None else entries,
            "filter": self.filter.state(),
        }
        return json.dumps(saved, allow_nan=False).encode()


def certificate(saved: bytes) -> Guarantee:
    """Return the guarantee for every patient, from the bytes of `to_bytes`. It does not depend on a record.

    Raises:
        LedgerDamaged: not given by `to_bytes`.
    """
    try:
        return IndividualFilter.restore(json.loads(saved)["filter"]).certificate()
    except (ValueError, KeyError, TypeError) as error:
        raise LedgerDamaged("the patients' own sums on this disk are damaged") from error


def rule_of(limit: IndividualLimit, saved: bytes | None) -> LimitRule:
    """Return the rule by which the patients' own sums are kept: that of the saved ones, else the policy's.

    Raises:
        ConfigurationError: the policy names another rule than the sums were begun under.
        LedgerDamaged: not saved by `IndividualBudget.to_bytes`.
    """
    if saved is None:
        return limit.rule or "renyi"
    try:
        begun: LimitRule = json.loads(saved)["filter"].get("rule", "renyi")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LedgerDamaged("the patients' own sums on this disk are damaged") from error
    if limit.rule not in (None, begun):
        raise ConfigurationError(
            f'[individual] rule = "{limit.rule}" in policy.toml, and the patients\' own sums of this data set were '
            f'begun under "{begun}", which holds from the first round on: set rule = "{begun}"'
        )
    return begun


def spec_of(limit: IndividualLimit, rule: LimitRule) -> AnyFilterSpec:
    """Return the terms that a new filter by this rule has. Raises InvalidArgument: no step fits under the limit."""
    # The noise is this hospital's own and its coins stay here: the coordinator is an observer like any other.
    terms: dict[str, Any] = {"delta": limit.delta, "limit_epsilon": limit.epsilon, "observer": Observer.COORDINATOR}
    if rule == "gaussian":
        releases = int(_NOISE_SHARE * limit.delta / release_slack(limit.epsilon, 1))
        return GaussianFilterSpec(releases=min(MOST_RELEASES, max(1, releases)), **terms)
    return FilterSpec(order=limit.fixed_order(), releases=MOST_RELEASES, **terms)


def _read(limit: IndividualLimit, saved: bytes | None) -> dict[str, Any]:
    """Return the state that `to_bytes` saved under this limit, or an initial one without patients."""
    spec = spec_of(limit, rule_of(limit, saved))
    if saved is None:
        # A filter has one member at least: made with one, who is taken out.
        nobody: dict[str, Any] = IndividualFilter(spec, members=1).state() | {"spent": [], "excluded": []}
        return {"patients": [], "before": 0.0, "entries": 0, "filter": nobody}
    try:
        state = json.loads(saved)
        inner, counts = state["filter"], {len(state["patients"])}
        counts |= {len(inner["spent"]), len(inner["excluded"])}
        begun = (inner["limit_epsilon"], inner["delta"], inner["order"] if isinstance(spec, FilterSpec) else None)
        if len(counts) > 1 or not math.isfinite(state["before"]) or state["entries"] < 0:
            raise ValueError("one sum for every patient is expected")
    except (ValueError, KeyError, TypeError) as error:
        raise LedgerDamaged("the patients' own sums on this disk are damaged") from error
    # The filter's order and limit hold from its first step on (Feldman & Zrnic 2021).
    if begun != (limit.epsilon, limit.delta, spec.order if isinstance(spec, FilterSpec) else None):
        raise ConfigurationError(
            "individual: the patients' own sums of this data set were begun under another epsilon, delta or order"
        )
    return state


def worst_cost(charge: Charge, spec: AnyFilterSpec) -> float:
    """Return what a round costs a patient at the clip norm, in the unit of the filter's bound.

    Raises:
        ConfigurationError: it is not finite, or the filter's rule does not count it.
    """
    if charge.level != "instance":
        raise ConfigurationError("individual: an update of scheme client left before, which no patient's sum counts")
    credited = isinstance(spec, FilterSpec)
    if charge.histograms and not credited:
        raise ConfigurationError(
            'individual: a noised histogram left before, which rule = "gaussian" does not count: set rule = "renyi"'
        )
    # At distance 1: the clip norm in units of itself, as a noise multiplier counts.
    rate = charge.sampling_rate if credited else 1.0
    once = spec.costs(1.0, noise_std=charge.noise_multiplier, sampling_rate=rate)
    published = charge.histograms and spec.costs(1.0, noise_std=charge.histogram_noise, sampling_rate=1.0)[0]
    return charge.steps * float(once[0]) + charge.histograms * float(published)
