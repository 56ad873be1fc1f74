"""From a ledger's entries to a certificate.

The coordinator that signs one and a reader who checks it use the same functions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from accounting.budget.accounts.cumulative import CumulativeLimit
from accounting.budget.bodies import Standing, event_in, settings_in
from accounting.budget.history import History, SpentAfter, history_of
from accounting.budget.ledger import Entry
from accounting.budget.releases import NamedModel, named_models
from accounting.plan.plan import Plan
from study_protocol.documents.by_hospital import DistanceBlocks, certified, fault_of_distances
from study_protocol.documents.nist import answers
from study_protocol.documents.phrases import UNIT_NOUNS, hospitals, meaning, questions, result_in_words, training_rounds
from study_protocol.secure_sum.promises import sums
from study_protocol.study.any_settings import require_training
from study_protocol.study.averaging import averaged_rounds
from study_protocol.study.certificate import (
    FORMAT,
    MAX_POINTS,
    Certificate,
    CertifiedDistances,
    CertifiedLedger,
    CertifiedLevel,
    CertifiedLimit,
    CertifiedMean,
    CertifiedMechanism,
    CertifiedMembers,
    CertifiedRounds,
    HowToVerify,
    SpentAfterRound,
)
from study_protocol.study.messages import LimitStatement, ModelInfo, Percentile, StopReason, StudyState
from study_protocol.study.plan_of import plan_of, require_plan
from study_protocol.study.settings import StudySettings
from study_protocol.study.who_sees_what import disclosures
from study_protocol.wire.signing import as_digits, decode_public_key, fingerprint


@dataclass(frozen=True)
class CertificateAccount:
    """The facts of a certificate that follow from the ledger.

    `round` is the newest charged round, 0 before the first.
    """

    study: str
    settings: StudySettings
    round: int
    limits: tuple[LimitStatement, ...]
    percentiles: tuple[Percentile, ...]
    charged: tuple[SpentAfter, ...]
    answered: int
    kinds: Counter[str]
    members: tuple[int, int] | None
    standing: Standing
    counted_entry: int
    entries: int
    sha256: str
    bound: Bound | None
    # The account of the Bayesian limit for patients, which reads their losses. None: there is none.
    by_loss: CumulativeLimit | None = None


@dataclass(frozen=True)
class Bound:
    """The facts that a ledger with named models adds. They do not depend on the coordinator's word.

    released  the rounds whose models the study's result may be made of, ascending. None of a single round's certificate
    """

    model: NamedModel | None
    state: StudyState
    stop_reason: StopReason | None
    released: tuple[int, ...] = ()


@dataclass(frozen=True)
class Facts:
    """The facts that the ledger does not hold: the coordinator's own word at the time of issue.

    If the ledger names its models, `state`, `stop_reason`, `model` and the rounds of `result` are taken from the
    ledger.
    """

    title: str
    state: StudyState
    stop_reason: StopReason | None
    issued_at: datetime
    coordinator_key: str
    head_signature: str
    model: ModelInfo | None
    result: CertifiedMean | None = None
    distances: DistanceBlocks | None = None


def compute_account(entries: Sequence[Entry], round_number: int | None = None) -> CertificateAccount:
    """Return every number of a certificate, up to the charge of `round_number`, or up to the end.

    Raises:
        LedgerError, PlanDiffers: the entries are no ledger of one study's settings.
        InvalidArgument: `round_number` was not charged.
        ValueError: a study of queries alone, whose answers are signed one by one.
    """
    begun = any(entry.kind in ("reserved", "asked") for entry in entries)
    history = history_of(entries, round_number)
    return account_of(
        entries[0], history, entries[-1], bound_by(named_models(entries), entries[-1], begun, round_number)
    )


def account_of(opening: Entry, history: History, newest: Entry, bound: Bound | None) -> CertificateAccount:
    """Return the numbers of one history. `opening` and `newest` are the ledger's first and last entry.

    Raises:
        PlanDiffers, ValueError: as `compute_account`.
    """
    opened, budget = event_in(opening), history.budget
    return CertificateAccount(
        study=str(opened["study"]),
        settings=require_training(require_plan(settings_in(opening), opened["plan"])),
        round=history.charged[-1].round if history.charged else 0,
        limits=tuple(LimitStatement.model_validate(limit) for limit in budget.statements()),
        percentiles=tuple(Percentile.model_validate(percentile) for percentile in budget.percentiles()),
        charged=history.charged,
        answered=history.answered,
        kinds=history.kinds,
        members=history.members,
        standing=history.standing,
        counted_entry=history.entry_count,
        entries=newest.sequence,
        sha256=newest.sha256,
        bound=bound,
        by_loss=next((each for each in budget.accounts if isinstance(each, CumulativeLimit)), None),
    )


def bound_by(models: Mapping[int, NamedModel], newest: Entry, begun: bool, round_number: int | None) -> Bound | None:
    """Return the facts that follow from the models that a ledger names, by version, and from its newest entry.

    Args:
        begun: whether a round of training or of a question was reserved.
        round_number: the round whose model is wanted. None: the newest model.
    """
    if not models:
        return None
    # No record went into the initial one.
    model = models.get(max(models) if round_number is None else round_number) if max(models) else None
    released = tuple(sorted(set(models) - {0})) if round_number is None else ()
    if newest.kind == "finished":
        return Bound(model, "finished", event_in(newest)["reason"], released)
    return Bound(model, "running" if begun else "enrolling", None, released)


def result_rounds(settings: StudySettings, released: Sequence[int]) -> dict[int, float]:
    """Return the released rounds that the study's result is a mean of, with their weights. Empty: it is one model."""
    averaging = settings.training.optimiser.averaging
    averaged = {} if averaging is None else averaged_rounds(averaging, released)
    return averaged if len(averaged) > 1 else {}


def mean_of(averaged: Mapping[int, float], sha256: str, size: int) -> CertifiedMean:
    """Return the mean of these rounds, as a certificate names it."""
    weights = list(averaged.values())
    is_plain_mean = len(set(weights)) == 1
    return CertifiedMean(sha256=sha256, bytes=size, rounds=list(averaged), weights=[] if is_plain_mean else weights)


def model_info(model: NamedModel) -> ModelInfo:
    """Return the model as the ledger names it."""
    return ModelInfo(version=model.version, sha256=model.sha256, bytes=model.bytes, clip_norm=model.clip_norm)


def issue_certificate(account: CertificateAccount, facts: Facts) -> Certificate:
    """Return the certificate, not signed yet."""
    settings, plan = account.settings, plan_of(account.settings)
    rounds, members = _rounds(account, plan), _members(account)
    limits = [
        CertifiedLimit(**limit.model_dump(), meaning=meaning(limit, plan, account.round, account.answered))
        for limit in account.limits
    ]
    mark = fingerprint(decode_public_key(facts.coordinator_key))
    model_entry = None if account.bound is None else account.bound.model
    facts = _as_in_ledger(facts, account)
    result = facts.result
    return Certificate(
        format=FORMAT,
        study=account.study,
        title=facts.title,
        state=facts.state,
        stop_reason=facts.stop_reason,
        issued_at=facts.issued_at,
        coordinator_key=facts.coordinator_key,
        coordinator_fingerprint=mark,
        settings_sha256=settings.digest(),
        round=account.round,
        model=facts.model,
        result=result,
        summary=[
            *_summary(limits, members, result, _counted_rounds(settings, rounds, account.round, limits)),
            *([] if settings.audit_in_words is None else [settings.audit_in_words]),
        ],
        limits=limits,
        distances=_distances(account, facts),
        percentiles=list(account.percentiles),
        mechanism=_mechanism(settings, plan),
        rounds=rounds,
        members=members,
        spent_after=_thinned(account.charged),
        who_sees_what=disclosures(settings, mine=False),
        under_masks=sums(settings.privacy.masking),
        nist=answers(settings, account.limits, account.round, account.answered),
        ledger=CertifiedLedger(
            entries=account.entries,
            sha256=account.sha256,
            signature=facts.head_signature,
            counted=account.counted_entry,
            released=None if model_entry is None else model_entry.entry,
        ),
        verify=how_to_verify(account.study, mark, result),
    )


def _as_in_ledger(facts: Facts, account: CertificateAccount) -> Facts:
    """Return the facts with those that the ledger states taken from it."""
    bound, result = account.bound, facts.result
    if bound is None:
        return facts
    if result is not None:
        averaged = result_rounds(account.settings, bound.released)
        result = mean_of(averaged, result.sha256, result.bytes) if averaged else None
    model = None if bound.model is None else model_info(bound.model)
    return replace(facts, state=bound.state, stop_reason=bound.stop_reason, model=model, result=result)


def _distances(account: CertificateAccount, facts: Facts) -> CertifiedDistances | None:
    blocks, by_loss = facts.distances, account.by_loss
    if blocks is None or by_loss is None or fault_of_distances(account.settings) is not None:
        return None
    stated = next(
        (limit.spent for limit in account.limits if limit.level == "instance" and limit.definition != "classical"), None
    )
    charged = [after.round for after in account.charged]
    in_full, cancelled = (account.kinds[kind] for kind in ("charged-in-full", "cancelled"))
    return certified(blocks, by_loss, stated, charged=charged, in_full=in_full, cancelled=cancelled)


def how_to_verify(study: str, mark: str, result: CertifiedMean | None = None) -> list[HowToVerify]:
    """Return the commands, complete.

    Args:
        mark: fingerprint of the coordinator's key, to be compared with a hospital's own.
    """
    check, key = "wardround certificate verify certificate.json", f"--coordinator-key {mark}"
    return [
        HowToVerify(shows="at a hospital of the study: that its own coordinator signed this", command=check),
        HowToVerify(
            shows="elsewhere: the same, once a hospital has read out this fingerprint (wardround doctor shows it)",
            command=f"{check} {key}",
        ),
        HowToVerify(
            shows="the ledger, from a person who may read the study",
            command=f"wardround ledger export {study} --out ledger.jsonl",
        ),
        HowToVerify(
            shows="that every ε follows from the raw events in the ledger",
            command=f"{check} --ledger ledger.jsonl {key}",
        ),
        HowToVerify(
            shows="that a model's file is the one that is named here",
            command=f"{check} --model model.safetensors {key}",
        ),
        *(() if result is None else _recompute(study, f"{check} --ledger ledger.jsonl", key)),
    ]


def _recompute(study: str, check: str, key: str) -> tuple[HowToVerify, HowToVerify]:
    return (
        HowToVerify(
            shows="the released models that the result is made of",
            command=f"wardround study model {study} -o model.safetensors --released released",
        ),
        HowToVerify(
            shows="that the result is their mean, computed again",
            command=f"{check} --model model.safetensors --released released {key}",
        ),
    )


def _summary(
    limits: Sequence[CertifiedLimit], members: CertifiedMembers, result: CertifiedMean | None, counted_rounds: str
) -> list[str]:
    origin = [] if result is None else [f"The result is a mean of released models, {result_in_words(result)}."]
    protected = [limit for limit in limits if limit.state != "unbounded"]
    bare = [
        f"No promise is made to a single {UNIT_NOUNS[limit.level]}." for limit in limits if limit.state == "unbounded"
    ]
    return [
        f"The model is trained with {hospitals(members)}. Their records stay with them; this document says how much "
        "the released models can give away about one of them.",
        *(limit.meaning for limit in protected if limit.definition == "classical"),
        *bare,
        f"{counted_rounds}. No round begins that could pass a limit.",
        *(f"{line} Such a mean costs no privacy beyond these numbers." for line in origin),
        "Not promised: that the model is right, or fair. What is true of all patients alike can be learnt from it.",
    ]


def _counted_rounds(
    settings: StudySettings, rounds: CertifiedRounds, last: int, limits: Sequence[CertifiedLimit]
) -> str:
    """Return a sentence about the rounds that the numbers count.

    A reader of a later round learns more than they say, unless every guarantee is that of the whole study.
    """
    statistics, trained = settings.statistics, training_rounds(rounds, plan_of(settings).steps_per_round)
    up_to = _up_to if any(limit.epsilon and limit.counted is None for limit in limits) else _whole_up_to
    if statistics is None:
        return f"{trained} of at most {rounds.most} rounds are counted{up_to(trained == rounds.most, last)}"
    answered = rounds.charged - trained
    whole = (trained, answered) == (rounds.most, statistics.max_queries)
    of_questions = f"{answered} of at most {questions(statistics.max_queries)}"
    return f"{trained} of at most {rounds.most} rounds of training and {of_questions} are counted{up_to(whole, last)}"


def _up_to(whole: bool, last: int) -> str:
    if whole:
        return ""
    return f", up to round {last}; what a later round gives away is not" if last else "; what a round gives away is not"


def _whole_up_to(whole: bool, last: int) -> str:
    return "" if whole else f", up to round {last}; the guarantee covers later ones as well" if last else ""


def _mechanism(settings: StudySettings, plan: Plan) -> CertifiedMechanism:
    privacy, steps = settings.privacy, [(level, plan.least_noised(level)) for level in plan.levels]
    return CertifiedMechanism(
        scheme=privacy.rules.id,
        title=privacy.rules.title,
        noise_by=privacy.rules.noise.value,
        masked=privacy.masking is not None and privacy.masking.mask_updates,
        disclosure=privacy.disclosure,
        steps_per_round=plan.steps_per_round,
        max_steps=plan.max_steps,
        noise_schedule=privacy.noise_schedule,
        levels=[
            CertifiedLevel(
                level=level.value,
                relation=step.relation.value,
                clip_norm=step.clip_norm,
                adaptive=privacy.adaptive_clip is not None,
                noise_multiplier=step.noise_multiplier,
                sampling_rate=step.sampling_rate,
            )
            for level, step in steps
        ],
    )


def _rounds(account: CertificateAccount, plan: Plan) -> CertifiedRounds:
    kinds, charged = account.kinds, len(account.charged)
    return CertifiedRounds(
        most=plan.rounds,
        charged=charged,
        in_full=kinds["charged-in-full"],
        cancelled=kinds["cancelled"],
        steps=(charged - account.answered) * plan.steps_per_round,
    )


def _members(account: CertificateAccount) -> CertifiedMembers:
    smallest, largest = account.members or (None, None)
    roster = account.standing.roster_sha256
    return CertifiedMembers(
        active=account.standing.members,
        least=smallest,
        most=largest,
        roster_sha256=roster,
        roster_number=as_digits(roster),
    )


def _thinned(charged: Sequence[SpentAfter]) -> list[SpentAfterRound]:
    """Return at most MAX_POINTS of them, the first and the last among them."""
    last, gaps = len(charged) - 1, MAX_POINTS - 1
    places = range(len(charged)) if last <= gaps else [last * i // gaps for i in range(MAX_POINTS)]
    return [SpentAfterRound(round=charged[at].round, spent=list(charged[at].spent)) for at in places]
