"""Membership inference: who took part in a study, told from how well its model fits each patient.

LiRA  the likelihood ratio of a patient's confidence under two normal laws, with and without the patient, of the
      confidences that other studies give the patient (Carlini et al. 2022, "Membership Inference Attacks From First
      Principles", section V). Offline, only the law without the patient is known.
RMIA  how often the likelihood that the model gives the patient, beside its mean over other studies, is γ times that of
      a record that took part in no study (Zarifzadeh, Liu & Shokri 2024, equations 2 and 4).

(ε, δ)-DP of a patient bounds every attack: TPR ≤ e^ε·FPR + δ, and 1 − FPR ≤ e^ε·(1 − TPR) + δ (Kairouz, Oh & Viswanath
2015, theorem 2.1).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict
from scipy import special as _special_functions  # pyright: ignore[reportMissingTypeStubs]
from scipy import stats as _statistics  # pyright: ignore[reportMissingTypeStubs]

from client_sdk.errors import ConfigurationError
from private_learning.tasks import Task, TaskDataset
from private_learning.tasks.task import Classification
from simulation.audit.shadows import Shadows, ShadowStudies, halved, held_out, usual_studies
from simulation.population import Population
from study_protocol.study.settings import StudySettings

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]
_special, _stats = cast(Any, _special_functions), cast(Any, _statistics)
# Shares of non-members that the attack takes for members.
FALSE_POSITIVES = (0.01, 0.001)
CONFIDENCE = 0.95
# That a sound study is said to pass its ceiling, once for all attacks and both shares.
CHANCE = 0.01
# RMIA's γ, as its authors set it.
_GAMMA = 2.0
# Losses below are rounding of float32.
_LEAST_LOSS = 1e-7
_POINTS = 61
WITHOUT_PRIVACY, STUDY = "without privacy", "this study"


class _Report(BaseModel):
    model_config = ConfigDict(frozen=True)


class TruePositives(_Report):
    """Members found at the threshold that takes a share of non-members for members.

    false_positives  that share, at most
    rate, low, high  share of members found, and an interval of at least 95 % confidence that counts the error of the
                     threshold too (Clopper & Pearson 1934), of an effective number of trials, because attacks on one
                     patient or one study are not independent (Korn & Graubard 1998)
    ceiling          the most that the certificate allows, rounded up. None: it states no ε of a patient
    passed           the certificate is refuted, with a chance of CHANCE at most where it holds
    """

    false_positives: float
    rate: float
    low: float
    high: float
    ceiling: float | None
    passed: bool


class AttackResult(_Report):
    """One attack. curve: (false positives, true positives) on a logarithmic grid."""

    attack: Literal["LiRA online", "LiRA offline", "RMIA"]
    auc: float
    at: tuple[TruePositives, ...]
    curve: tuple[tuple[float, float], ...]


class AttackedModels(_Report):
    """The attacks on models that were trained in one way. metric, value: a mean over the studies."""

    name: str
    studies: int
    metric: str | None
    value: float | None
    attacks: tuple[AttackResult, ...]


class MembershipReport(_Report):
    """What membership inference finds. epsilon, delta: of one patient, as the studies state them at worst."""

    patients: int
    epsilon: float | None
    delta: float | None
    models: tuple[AttackedModels, ...]
    ceiling: tuple[tuple[float, float], ...] | None

    @property
    def alarms(self) -> tuple[str, ...]:
        """Return the attacks that find more members than the certificate allows."""
        of_study = (attack for models in self.models if models.name == STUDY for attack in models.attacks)
        return tuple(attack.attack for attack in of_study if any(point.passed for point in attack.at))


def membership(
    settings: StudySettings,
    task: Task,
    population: Population,
    test: TaskDataset | None = None,
    *,
    studies: int | None = None,
    seed: int = 0,
    workers: int | None = None,
) -> MembershipReport:
    """Run shadow studies, without privacy and as the settings say, and attack each by all others.

    Args:
        test: records of no training patient, one row each. None: a fifth of each hospital's patients is held out.
        studies: None: as many as take about two minutes, from 16 to 64.

    Raises:
        ConfigurationError: too few studies or patients, or the fewest would take too long.
        ClientStopped, StudyPaused, TrainingStopped: as `Engine.run` and `fitted`.
    """
    if test is None:
        population, test = held_out(population, seed)
    studies = studies or usual_studies(settings, task, population)
    if studies < 4:
        raise ConfigurationError(f"{studies} shadow studies are too few: ask for 4 or more")
    models: list[AttackedModels] = []
    spent: tuple[float, float] | None = None
    for name, shadowed in ((WITHOUT_PRIVACY, None), (STUDY, halved(settings))):
        shadows = ShadowStudies(shadowed, task, population, test).run(studies, seed, workers=workers)
        spent = shadows.spent
        models.append(attacked(name, task, shadows))
    epsilon, delta = spent or (None, None)
    curve = None if spent is None else _points(partial(ceiling, epsilon=spent[0], delta=spent[1]))
    return MembershipReport(
        patients=len(population.dataset), epsilon=epsilon, delta=delta, models=tuple(models), ceiling=curve
    )


def attacked(name: str, task: Task, shadows: Shadows) -> AttackedModels:
    """Return the three attacks on these studies."""
    confident = confidences(task, shadows.losses)
    scores: Mapping[Any, Floats] = {
        "LiRA online": likelihood_ratios(confident, shadows.inside),
        "LiRA offline": likelihood_ratios(confident, shadows.inside, online=False),
        "RMIA": relative_likelihoods(shadows.losses, shadows.other_losses, shadows.inside),
    }
    metric = next(iter(shadows.metrics[0]), None) if "accuracy" not in shadows.metrics[0] else "accuracy"
    return AttackedModels(
        name=name,
        studies=len(shadows.inside),
        metric=metric,
        value=None if metric is None else shadows.mean(metric),
        attacks=tuple(result(attack, each, shadows.inside, shadows.spent) for attack, each in scores.items()),
    )


def confidences(task: Task, losses: Floats) -> Floats:
    """Return log(p/(1 − p)) of the true class's probability p, which is nearly normal, or −loss of other losses."""
    if not isinstance(task, Classification) or task.gamma or task.class_weights:
        return -losses
    bounded = np.maximum(losses, _LEAST_LOSS)
    return -bounded - np.log(-np.expm1(-bounded))


def likelihood_ratios(confident: Floats, inside: Booleans, *, online: bool = True) -> Floats:
    """Return (studies, patients) scores of LiRA: every study is attacked by what the others show.

    The variance is common to all patients, which is more exact than one of each below several hundred studies.
    """
    member, stranger = _others_means(confident, inside), _others_means(confident, ~inside)
    spread = _common_variance(confident, ~inside)
    outside = np.square(confident - stranger) / spread
    if not online:
        return np.sign(confident - stranger) * outside
    within = _common_variance(confident, inside)
    return outside - np.square(confident - member) / within


def _others_means(values: Floats, mask: Booleans) -> Floats:
    """Return, for each study and patient, the mean over the other studies where the patient is chosen."""
    sums, counts = (values * mask).sum(axis=0), mask.sum(axis=0)
    return (sums - values * mask) / np.maximum(counts - mask, 1)


def _common_variance(values: Floats, mask: Booleans) -> float:
    means = (values * mask).sum(axis=0) / np.maximum(mask.sum(axis=0), 1)
    freedom = np.maximum(mask.sum(axis=0) - 1, 0).sum()
    return float((np.square(values - means) * mask).sum() / max(freedom, 1)) + 1e-12


def relative_likelihoods(losses: Floats, other_losses: Floats, inside: Booleans) -> Floats:
    """Return (studies, patients) scores of RMIA."""
    count = len(losses)
    likely, of_others = np.exp(-losses), np.exp(-other_losses)
    usual = (_others_means(likely, inside) + _others_means(likely, ~inside)) / 2
    ratios = -losses - np.log(np.maximum(usual, 1e-300))
    usual_others = (of_others.sum(axis=0) - of_others) / (count - 1)
    compared = np.sort(-other_losses - np.log(np.maximum(usual_others, 1e-300)), axis=1)
    beaten = np.zeros(ratios.shape)
    for place, row in enumerate(compared):
        beaten[place] = np.searchsorted(row, ratios[place] - math.log(_GAMMA))
    # Patients who beat as many records are told apart by the ratio itself.
    return beaten + _special.expit(ratios)


def result(attack: Any, scores: Floats, inside: Booleans, spent: tuple[float, float] | None = None) -> AttackResult:
    """Return how well the scores tell members.

    Args:
        scores, inside: (studies, patients).
        spent: (ε, δ) of one patient.
    """
    members, strangers = np.sort(scores[inside]), np.sort(scores[~inside])
    at = tuple(_found(scores, inside, strangers, share, spent) for share in FALSE_POSITIVES)
    return AttackResult(
        attack=attack,
        auc=_area(members, strangers),
        at=at,
        curve=_points(partial(_found_at, members, strangers)),
    )


def _area(members: Floats, strangers: Floats) -> float:
    """Return the probability that a member's score is above a stranger's (ties: half)."""
    below, upto = np.searchsorted(strangers, members), np.searchsorted(strangers, members, side="right")
    return float((below + upto).mean() / 2 / len(strangers))


def _threshold(strangers: Floats, share: float) -> float:
    """Return the least score above which at most this share of the strangers lies."""
    allowance = math.floor(share * len(strangers))
    return -math.inf if allowance >= len(strangers) else float(strangers[len(strangers) - 1 - allowance])


def _above(ascending: Floats, threshold: float) -> int:
    return len(ascending) - int(np.searchsorted(ascending, threshold, side="right"))


def _found_at(members: Floats, strangers: Floats, share: float) -> float:
    return _above(members, _threshold(strangers, share)) / len(members)


def _points(of: Callable[[float], float]) -> tuple[tuple[float, float], ...]:
    return tuple((float(share), float(of(float(share)))) for share in np.logspace(-3, 0, _POINTS))


def _found(
    scores: Floats, inside: Booleans, strangers: Floats, share: float, spent: tuple[float, float] | None
) -> TruePositives:
    threshold = _threshold(strangers, share)
    says = scores > threshold
    low, high = _rates_at(scores, inside, strangers, share, _effect(says, ~inside))
    limit, passed = None, False
    if spent is not None:
        # Two sides, of true and of false positives, of three attacks at two shares.
        each = CHANCE / (3 * len(FALSE_POSITIVES))
        limit = ceiling(share, *spent)
        passed = _interval(says, inside, each)[0] > ceiling(_interval(says, ~inside, each)[1], *spent)
    rate = int((says & inside).sum()) / int(inside.sum())
    return TruePositives(false_positives=share, rate=rate, low=low, high=high, ceiling=limit, passed=passed)


def _rates_at(scores: Floats, inside: Booleans, strangers: Floats, share: float, effect: float) -> tuple[float, float]:
    """Return an interval of the rate of members above the threshold that this share of all strangers passes.

    That threshold is not known either: it lies between two of the strangers' scores. Each tail, of the threshold and
    of the rate, has a fourth of the chance to miss.

    Args:
        strangers: ascending scores.
        effect: by how much they count less than independent ones.
    """
    tail, count = (1 - CONFIDENCE) / 4, len(strangers)
    smallest = math.floor(effect * _stats.binom.ppf(tail, count // effect, share))
    largest = math.ceil(effect * (_stats.binom.isf(tail, count // effect, share) + 1))
    above = math.inf if smallest < 1 else strangers[count - smallest]
    below = -math.inf if largest > count else strangers[count - largest]
    # At the lower threshold a score that is equal counts too.
    return _interval(scores > above, inside, 2 * tail)[0], _interval(scores >= below, inside, 2 * tail)[1]


def ceiling(false_positives: float, epsilon: float, delta: float) -> float:
    """Return the largest true-positive rate that (ε, δ)-DP allows, rounded up."""
    growth = math.exp(min(epsilon, 700.0))
    bound = min(1.0, growth * false_positives + delta, 1 - (1 - delta - false_positives) / growth)
    return min(1.0, bound * (1 + 1e-12) + 1e-15)


def _interval(says: Booleans, sample: Booleans, chance: float) -> tuple[float, float]:
    """Return an interval of the share of the sample of whom the attack says "member". It misses with `chance`."""
    hits, trials = int((says & sample).sum()), int(sample.sum())
    effect = _effect(says, sample)
    right, count = hits / effect, trials / effect
    low = 0.0 if hits == 0 else float(_stats.beta.ppf(chance / 2, right, count - right + 1))
    high = 1.0 if hits == trials else float(_stats.beta.ppf(1 - chance / 2, right + 1, count - right))
    return low, high


def _effect(says: Booleans, sample: Booleans) -> float:
    """Return how much larger the variance of a share is than that of independent trials, at least 1.

    A variance of a mean over groups, of patients or of studies, is compared with it.
    """
    rate = int((says & sample).sum()) / int(sample.sum())
    return max(1.0, *(_design_effect(says, sample, rate, axis) for axis in (0, 1)))


def _design_effect(says: Booleans, sample: Booleans, rate: float, axis: int) -> float:
    """Return how much larger the variance of the rate is than that of independent trials, by groups along an axis."""
    groups = sample.shape[1 - axis]
    if groups < 2 or not 0 < rate < 1:
        return 1.0
    rests = ((says - rate) * sample).sum(axis=axis)
    variance = float(np.square(rests).sum()) * groups / (groups - 1)
    return variance / (rate * (1 - rate) * int(sample.sum()))


def strongest(attacks: Sequence[AttackResult]) -> AttackResult:
    """Return the attack that finds most members at the first share."""
    return max(attacks, key=lambda each: each.at[0].rate)
