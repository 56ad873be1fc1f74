"""The hospital's own limits over one set of records, whatever any coordinator claims."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from accounting.accountants.classical import ClassicalAccountant
from accounting.mechanisms.conversion import spendable_delta
from accounting.plan.mechanism import total_noise
from client_sdk.errors import OwnBudgetExceeded
from client_sdk.protocol.study.settings import LevelName, Privacy, StudySettings


@dataclass(frozen=True)
class OwnLimit:
    """At this level never more than (epsilon, delta), classical, over all studies on these records.

    order  the one Rényi moment order at which it is enforced, fixed before the first charge
    """

    level: LevelName
    epsilon: float
    delta: float
    order: float

    @staticmethod
    def usual_order(epsilon: float, delta: float) -> float:
        """The order that is best where Gaussian noise without sampling reaches (epsilon, delta): 2 ln(1/δ) / ε."""
        return 2 * math.log(1 / delta) / epsilon


@dataclass(frozen=True)
class Charge:
    """What one round costs at most, from public numbers: `steps` Gaussian steps at one level, and noised histograms.

    scheme client: the noise is the coordinator's, and protects against those who see releases only.
    histogram_noise  noise on a count over what one neighbour moves; counts only with `histograms`
    """

    level: LevelName
    noise_multiplier: float
    sampling_rate: float
    steps: int
    histograms: int = 0
    histogram_noise: float = 0.0

    @classmethod
    def of_round(cls, settings: StudySettings, round: int | None = None) -> Charge:
        """The charge of round number `round` of a study; None: of its steps alone."""
        privacy, published = settings.privacy, 0 if round is None else histograms_in(settings, [round])
        # In a sum the others add noise too; this hospital counts its own alone.
        reported = (published, _histogram_noise(privacy, own_alone=True) if published else 0.0)
        if privacy.scheme != "client":
            steps = settings.steps_per_round
            return cls("instance", privacy.noise_multiplier, privacy.sampling_rate, steps, *reported)
        # A round abandoned for want of clients tells who was sampled; then sampling earns no credit.
        rate = privacy.client_sampling_rate if settings.schedule.min_clients == 0 else 1.0
        return cls("client", privacy.noise_multiplier, rate, 1, *reported)

    @classmethod
    def of_rounds(cls, settings: StudySettings, rounds: int) -> Charge:
        """The steps of one round, and the histograms of rounds 1 … `rounds` together: for rounds that were lost."""
        published = histograms_in(settings, range(1, rounds + 1))
        noise = _histogram_noise(settings.privacy, own_alone=True) if published else 0.0
        return replace(cls.of_round(settings), histograms=published, histogram_noise=noise)

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Charge:
        """Out of a ledger entry; entries from before histograms were charged name none."""
        return cls(**{field.name: body[field.name] for field in fields(cls) if field.name in body})


def epsilon_spent(charges: Sequence[Charge], limit: OwnLimit) -> float:
    """ε of these charges at the limit's level and delta (Rényi filter: Feldman & Zrnic 2021)."""
    kinds: Counter[tuple[float, float]] = Counter()
    for charge in charges:
        if charge.level == limit.level:
            kinds[charge.noise_multiplier, charge.sampling_rate] += charge.steps
            if charge.histograms:
                kinds[charge.histogram_noise, 1.0] += charge.histograms
    delta = spendable_delta(limit.delta, limit.epsilon, kinds.total())
    account = ClassicalAccountant(delta=delta, method="rdp", order=limit.order)
    for (noise, rate), steps in kinds.items():
        account.step(noise_multiplier=noise, sampling_rate=rate, count=steps)
    return account.epsilon()


def require_affordable(charges: Sequence[Charge], next_one: Charge, limits: Sequence[OwnLimit]) -> None:
    """Whether one more charge keeps every limit.

    Raises:
        OwnBudgetExceeded: one would be passed. An ε that is NaN or infinite reads as passed.
    """
    for limit in limits:
        if limit.level != next_one.level:
            continue
        after = epsilon_spent([*charges, next_one], limit)
        if not after <= limit.epsilon:
            raise OwnBudgetExceeded(
                "own-budget-exceeded",
                f"this hospital's own limit at level {limit.level} (epsilon {limit.epsilon:g}) would be passed",
            )


def histograms_in(settings: StudySettings, rounds: Iterable[int]) -> int:
    """How many of these rounds publish a noised histogram."""
    noise = settings.privacy.histogram_noise
    return 0 if noise is None else sum(round % noise.every == 0 for round in rounds)


def require_within_study(settings: StudySettings, rounds_sent: int, histograms: int = 0) -> None:
    """Whether one more round keeps the study's own max_steps and classical limits, by this hospital's own count.

    rounds_sent  rounds of the study of which something may have left
    histograms   noised histograms that were published, the next round's included

    Raises:
        OwnBudgetExceeded: the coordinator asks for more than the study allows.
    """
    privacy = settings.privacy
    if settings.steps_per_round * (rounds_sent + 1) > privacy.max_steps:
        raise OwnBudgetExceeded("max-steps-exceeded", "the round lies past the study's own max_steps")
    for limit in privacy.limits:
        charge = _study_charge(settings, limit.level)
        whole = replace(charge, steps=charge.steps * (rounds_sent + 1), histograms=histograms)
        own = OwnLimit(limit.level, limit.epsilon, limit.delta, privacy.classical_order)
        if limit.definition == "classical" and not epsilon_spent([whole], own) <= limit.epsilon:
            raise OwnBudgetExceeded(
                "study-limit-exceeded", f"the round would pass the study's own classical limit at level {limit.level}"
            )


def guaranteed_noise_std(privacy: Privacy) -> float:
    """Noise that is sure to be in what leaves masks, or the hospital: of all honest clients where a sum hides them."""
    std = privacy.noise_multiplier * privacy.clip_norm
    if privacy.masking is None or privacy.scheme not in ("sequential", "joint"):
        return std
    return total_noise([std] * privacy.masking.honest_survivors)


def _study_charge(settings: StudySettings, level: LevelName) -> Charge:
    """One round as the study's own budget counts it at `level`; this hospital's own count is `Charge.of_round`."""
    privacy = settings.privacy
    charge = replace(Charge.of_round(settings), histogram_noise=_histogram_noise(privacy, own_alone=False))
    if privacy.scheme == "joint" and level == "client" and privacy.client_clip_norm is not None:
        multiplier = math.nextafter(guaranteed_noise_std(privacy) / privacy.client_clip_norm, 0.0)
        return replace(charge, level="client", noise_multiplier=multiplier, sampling_rate=1.0, steps=1)
    if privacy.scheme not in ("sequential", "joint"):
        return charge
    return replace(charge, noise_multiplier=math.nextafter(guaranteed_noise_std(privacy) / privacy.clip_norm, 0.0))


def _histogram_noise(privacy: Privacy, *, own_alone: bool) -> float:
    """Noise on a published count over what one neighbour moves, rounded down; own_alone: this hospital's own share."""
    noise, masking = privacy.histogram_noise, privacy.masking
    if noise is None:
        return 0.0
    # A client adds one to one count. Elsewhere a count leaves one bin for another.
    moved = 1.0 if privacy.scheme == "client" else math.nextafter(math.sqrt(2.0), 2.0)
    shared = own_alone and privacy.scheme in ("client", "joint")
    shares = masking.honest_survivors if shared and masking is not None else 1
    return math.nextafter(noise.std / math.sqrt(shares) / moved, 0.0)
