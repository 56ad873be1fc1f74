"""Answers to the questions of NIST SP 800-226 (March 2025, Guidelines for Evaluating Differential Privacy Guarantees).

The three parts are the claim, the algorithm that is to keep it, and the hazards by which a true claim fails in
practice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from accounting.plan.plan import Plan
from accounting.plan.schemes import Noise
from accounting.units import Level, Observer, Relation
from study_protocol.documents.phrases import budget_line, clip_norm, observer_phrase, questions
from study_protocol.study.certificate import NistAnswer
from study_protocol.study.messages import LimitStatement
from study_protocol.study.noise_schedule import schedule_in_words
from study_protocol.study.plan_of import plan_of
from study_protocol.study.settings import StudySettings
from study_protocol.wire.rounded import at_least, exact

_NEIGHBOURS = {
    Relation.ADD_REMOVE: "with and without one {one} (add-remove, unbounded DP)",
    Relation.ZERO_OUT: "one {one} takes part with its noise, once with its data, once with zeros for them (zero-out)",
    Relation.REPLACE_ONE: "one {one} in the place of another (replace-one, bounded DP)",
}
_PART = {
    Noise.COORDINATOR: "central",
    Noise.EACH_CLIENT: "local (at each hospital)",
    Noise.CLIENTS_TOGETHER: "distributed",
    Noise.CLIENTS_IN_SHARES: "distributed",
}


def answers(
    settings: StudySettings, limits: Sequence[LimitStatement], round_number: int, answered: int
) -> list[NistAnswer]:
    """Return every question with its answer for this study.

    Args:
        round_number: the newest round that the limits count.
        answered: how many of the rounds were of questions.
    """
    plan = plan_of(settings)
    against = observer_phrase(plan.observer, round_number, answered)
    guarantee = _guarantee(settings, plan, limits, against)
    return [
        *(NistAnswer(part="guarantee", asks=asks, answer=text) for asks, text in guarantee),
        *(NistAnswer(part="mechanism", asks=asks, answer=text) for asks, text in _mechanism(settings, plan, limits)),
        *(NistAnswer(part="hazards", asks=asks, answer=text) for asks, text in _hazards(settings)),
    ]


def unit(level: Level, settings: StudySettings) -> str:
    """Return the unit of privacy at a level."""
    if level is Level.CLIENT:
        return "everything that one hospital contributes"
    rows = settings.training.rows_per_patient
    share = "its one row" if rows == 1 else f"all its rows, of which at most {rows} are used"
    return f"one patient's record at one hospital, {share}; who is a patient, the hospital's own identifiers say"


def neighbours(plan: Plan, level: Level) -> str:
    """Return the two data sets that are compared, in words."""
    member = "hospital" if level is Level.CLIENT else "record"
    return _NEIGHBOURS[plan.protection(level).relation].format(one=member)


def trust(settings: StudySettings, plan: Plan) -> str:
    """Return who adds the noise and what the coordinator is trusted with, in words."""
    masking, noise = settings.privacy.masking, plan.rules.noise
    model = f"{_PART[noise]} model in a federation: hospitals keep their records and are trusted with their own"
    if plan.rules.pooled and masking is not None:
        colluders = f"at most {masking.colluders} of them side with the coordinator"
        void = "; it receives log-moments without noise: void against the coordinator"
        exception = "" if plan.observer is Observer.COORDINATOR else void
        return f"{model}; each adds a share of the noise, and only sums are seen; {colluders}{exception}"
    if noise is Noise.COORDINATOR:
        sees = "sums" if masking is not None else "updates"
        return f"{model}; the coordinator sees {sees} without noise and is trusted to add it"
    if plan.observer is Observer.COORDINATOR:
        return f"{model}; each adds enough noise for itself, so that the coordinator need not be trusted with privacy"
    return f"{model}; each adds enough noise to its updates for itself, but shows log-moments without noise"


def _guarantee(
    settings: StudySettings, plan: Plan, limits: Sequence[LimitStatement], against: str
) -> Iterator[tuple[str, str]]:
    yield "What is protected: the unit of privacy", "; ".join(unit(level, settings) for level in plan.levels)
    yield "Which data sets are compared: neighbours", "; ".join(neighbours(plan, level) for level in plan.levels)
    yield "Against whom", against
    yield "Trust model", trust(settings, plan)
    yield "Privacy parameters ε and δ", "; ".join(budget_line(limit) for limit in limits)
    bayesian = "; beside it Bayesian DP, for typical members of the population" if plan.bayesian is not None else ""
    yield "Variant", f"(ε, δ), approximate DP{bayesian}"
    yield "Queries", _queries(settings, plan)


def _queries(settings: StudySettings, plan: Plan) -> str:
    upper_bound, statistics = f"{plan.max_steps} noised steps in {plan.rounds} rounds at most", settings.statistics
    if statistics is None:
        return f"none from outside: {upper_bound}, fixed before the first; each round releases a model"
    return (
        f"at most {questions(statistics.max_queries)} from outside, each of at most {statistics.max_cells} numbers "
        f"and charged to the same limits before it is answered; {upper_bound}, fixed before the first; each round of "
        "training releases a model"
    )


def _composition(settings: StudySettings, limits: Sequence[LimitStatement]) -> str:
    rules = ", ".join(dict.fromkeys(str(limit.enforced_by) for limit in limits if limit.enforced_by is not None))
    every = "all rounds" if settings.statistics is None else "all rounds, all questions"
    return f"over {every} and every histogram that is published; enforced by {rules}, before each round"


def _mechanism(settings: StudySettings, plan: Plan, limits: Sequence[LimitStatement]) -> Iterator[tuple[str, str]]:
    clipped = "one hospital's update" if plan.rules.clips_updates else "one record's gradient"
    steps = [(level, plan.least_noised(level)) for level in plan.levels]
    adaptive, stages = settings.privacy.adaptive_clip is not None, settings.privacy.noise_stages
    by_round = "" if stages is None else f" at least; {schedule_in_words(stages)}"
    levels = "; ".join(
        f"{level} level: {clip_norm(step.clip_norm, adaptive=adaptive)}, "
        f"noise multiplier {at_least(step.noise_multiplier)}"
        for level, step in steps
    )
    yield (
        "Mechanism",
        f"{clipped} is clipped in L2 norm, discrete Gaussian noise is added to the sum; {levels}{by_round}",
    )
    yield "Sampling", "; ".join(f"{level} level: {_credit(step.sampling_rate)}" for level, step in steps)
    yield "Composition", _composition(settings, limits)
    yield "Post-processing", "averaging, the optimiser and every use of a released model cost nothing more"
    plain_parts = (
        "settings, number of hospitals, when rounds began and how they ended; metrics of a declared evaluation set"
    )
    plain = plan.bayesian is not None and plan.disclosure != "noised"
    moments = "; the rounds' log-moments" if plain else ""
    yield "Quantities without protection", f"{plain_parts}{moments}"
    yield "Utility and bias", "not certified: the model card has both; noise is harder on small groups of patients"


def _credit(rate: float) -> str:
    return "no credit is taken" if rate == 1 else f"Poisson, rate {exact(rate)}, secret"


def _shown_by_time(settings: StudySettings) -> str:
    if settings.schedule.slots:
        return "after how many of its slots a hospital answers, within one of which nothing depends on its records"
    return "how long a step takes shows how many passes it had"


def _hazards(settings: StudySettings) -> Iterator[tuple[str, str]]:
    yield (
        "Exposure where data are collected",
        "records are not collected: they stay at their hospital, which logs all that leaves; what a hospital keeps "
        "itself is protected by its own security alone",
    )
    yield (
        "Security and access",
        "every request is signed; the coordinator's database is compared with the signed ledger before each round",
    )
    yield (
        "Floating point",
        "noise is drawn as integers from the exact discrete Gaussian law; rounding and the order of sums are in the "
        "sensitivity",
    )
    yield "Random numbers", "AES-256 in counter mode, its key from the operating system"
    yield (
        "Side channels",
        f"steps run in passes of one public shape, whatever the batch; not hidden: {_shown_by_time(settings)}",
    )
    yield (
        "Conclusions about populations",
        "not prevented: what is true of all patients alike can be learnt, and applied to one who took no part",
    )
    yield "Families and groups", "k people together: ε times k, and δ times k e^(kε)"
    yield (
        "Other studies on the same people",
        "not in this ε: each hospital keeps an account of its own over all studies on a data set",
    )
    yield (
        "Choices made on the data before",
        "not in this ε: settings are frozen, what they were tuned on is not known",
    )
    yield ("Rounds that fail, crashes", "charged before anything is computed; free only where nothing left a building")
    beyond = " The operator asked for limits or noise beyond the usual bounds." if settings.beyond_bounds else ""
    yield ("Large ε", f"the limit stops the study by itself and cannot be raised.{beyond}")
    yield (
        "Errors in the software",
        "tests hold the accounts against independent ones; from the ledger every ε can be computed again by others",
    )
