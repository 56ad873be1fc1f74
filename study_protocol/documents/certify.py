"""From a ledger's entries to a certificate: the same for the coordinator that signs one and for whoever checks it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from accounting.budget.bodies import Standing, event_in, settings_in
from accounting.budget.history import History, SpentAfter, history_of
from accounting.budget.ledger import Entry
from accounting.budget.releases import NamedModel, named_models
from accounting.plan.plan import Plan
from study_protocol.documents.nist import answers
from study_protocol.documents.words import ONE, hospitals, meaning, questions, training_rounds
from study_protocol.secure_sum.promises import sums
from study_protocol.study.any_settings import trained
from study_protocol.study.certificate import (
    FORMAT,
    MOST_POINTS,
    Certificate,
    CertifiedLedger,
    CertifiedLevel,
    CertifiedLimit,
    CertifiedMechanism,
    CertifiedMembers,
    CertifiedRounds,
    HowToVerify,
    SpentAfterRound,
)
from study_protocol.study.messages import LimitStatement, ModelInfo, Percentile, StopReason, StudyState
from study_protocol.study.plan_of import plan_of, require_plan
from study_protocol.study.settings import StudySettings
from study_protocol.study.who_sees_what import seen
from study_protocol.wire.signing import as_digits, decode_public_key, fingerprint


@dataclass(frozen=True)
class Computed:
    """All that the ledger says. `round`: the newest that is charged; 0 before the first."""

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
    counted: int
    entries: int
    sha256: str
    bound: Bound | None


@dataclass(frozen=True)
class Bound:
    """What a ledger that names its models says besides: no word of the coordinator's is needed for it."""

    model: NamedModel | None
    state: StudyState
    stop_reason: StopReason | None


@dataclass(frozen=True)
class Facts:
    """What the ledger does not say: the coordinator's own word at the time of issue.

    Of a ledger that names its models, `state`, `stop_reason` and `model` are taken from there.
    """

    title: str
    state: StudyState
    stop_reason: StopReason | None
    issued_at: datetime
    coordinator_key: str
    head_signature: str
    model: ModelInfo | None


def computed(entries: Sequence[Entry], round: int | None = None) -> Computed:
    """Every number of a certificate, up to the charge of `round`, or up to the end.

    Raises:
        LedgerError, PlanDiffers: the entries are no ledger of one study's settings.
        InvalidArgument: `round` was not charged.
        ValueError: a study of queries alone, whose answers are signed one by one.
    """
    begun = any(entry.kind in ("reserved", "asked") for entry in entries)
    history = history_of(entries, round)
    return stated(entries[0], history, entries[-1], bound_by(named_models(entries), entries[-1], begun, round))


def stated(opening: Entry, history: History, newest: Entry, bound: Bound | None) -> Computed:
    """The numbers of one history; `opening` and `newest` are the ledger's first and last entry.

    Raises:
        PlanDiffers, ValueError: as `computed`.
    """
    opened, budget = event_in(opening), history.budget
    return Computed(
        study=str(opened["study"]),
        settings=trained(require_plan(settings_in(opening), opened["plan"])),
        round=history.charged[-1].round if history.charged else 0,
        limits=tuple(LimitStatement.model_validate(limit) for limit in budget.statements()),
        percentiles=tuple(Percentile.model_validate(one) for one in budget.percentiles()),
        charged=history.charged,
        answered=history.answered,
        kinds=history.kinds,
        members=history.members,
        standing=history.standing,
        counted=history.entry_count,
        entries=newest.sequence,
        sha256=newest.sha256,
        bound=bound,
    )


def bound_by(named: Mapping[int, NamedModel], newest: Entry, begun: bool, round: int | None) -> Bound | None:
    """What follows from the models that a ledger names, by version, and from its newest entry.

    begun  whether a round of training or of a question was reserved
    round  whose model is asked for; None: the newest one's
    """
    if not named:
        return None
    # No record went into the initial one.
    model = named.get(max(named) if round is None else round) if max(named) else None
    if newest.kind == "finished":
        return Bound(model, "finished", event_in(newest)["reason"])
    return Bound(model, "running" if begun else "enrolling", None)


def issued(found: Computed, facts: Facts) -> Certificate:
    """The certificate, not signed yet."""
    settings, plan = found.settings, plan_of(found.settings)
    rounds, members = _rounds(found, plan), _members(found)
    limits = [
        CertifiedLimit(**limit.model_dump(), meaning=meaning(limit, plan, found.round, found.answered))
        for limit in found.limits
    ]
    mark = fingerprint(decode_public_key(facts.coordinator_key))
    bound = found.bound
    named = None if bound is None else bound.model
    model = facts.model if bound is None else None
    if named is not None:
        model = ModelInfo(version=named.version, sha256=named.sha256, bytes=named.bytes)
    return Certificate(
        format=FORMAT,
        study=found.study,
        title=facts.title,
        state=facts.state if bound is None else bound.state,
        stop_reason=facts.stop_reason if bound is None else bound.stop_reason,
        issued_at=facts.issued_at,
        coordinator_key=facts.coordinator_key,
        coordinator_fingerprint=mark,
        settings_sha256=settings.digest(),
        round=found.round,
        model=model,
        summary=_summary(limits, members, _counted(settings, rounds, found.round)),
        limits=limits,
        percentiles=list(found.percentiles),
        mechanism=_mechanism(settings, plan),
        rounds=rounds,
        members=members,
        spent_after=_thinned(found.charged),
        who_sees_what=seen(settings, mine=False),
        under_masks=sums(settings.privacy.masking),
        nist=answers(settings, found.limits, found.round, found.answered),
        ledger=CertifiedLedger(
            entries=found.entries,
            sha256=found.sha256,
            signature=facts.head_signature,
            counted=found.counted,
            released=None if named is None else named.entry,
        ),
        verify=how_to_verify(found.study, mark),
    )


def how_to_verify(study: str, mark: str) -> list[HowToVerify]:
    """The commands, complete. mark: fingerprint of the coordinator's key, to be compared with a hospital's own."""
    check, key = "wardround certificate verify certificate.json", f"--coordinator-key {mark}"
    return [
        HowToVerify(shows="at a hospital of the study: that its own coordinator signed this", command=check),
        HowToVerify(
            shows="elsewhere: the same, once a hospital has read out this fingerprint (wardround doctor shows it)",
            command=f"{check} {key}",
        ),
        HowToVerify(
            shows="the ledger, from somebody who may read the study",
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
    ]


def _summary(limits: Sequence[CertifiedLimit], members: CertifiedMembers, counted: str) -> list[str]:
    protected = [limit for limit in limits if limit.state != "unbounded"]
    bare = [f"No promise is made to a single {ONE[one.level]}." for one in limits if one.state == "unbounded"]
    return [
        f"The model is trained with {hospitals(members)}. Their records stay with them; this document says how much "
        "the released models can give away about one of them.",
        *(limit.meaning for limit in protected if limit.definition == "classical"),
        *bare,
        f"{counted}. No round begins that could pass a limit.",
        "Not promised: that the model is right, or fair. What is true of all patients alike can be learnt from it.",
    ]


def _counted(settings: StudySettings, rounds: CertifiedRounds, last: int) -> str:
    """Which rounds the numbers count. Who sees a later one, too, learns more than they say."""
    asked, trained = settings.statistics, training_rounds(rounds, plan_of(settings).steps_per_round)
    if asked is None:
        return f"{trained} of at most {rounds.most} rounds are counted{_up_to(trained == rounds.most, last)}"
    answered = rounds.charged - trained
    whole = (trained, answered) == (rounds.most, asked.max_queries)
    of_questions = f"{answered} of at most {questions(asked.max_queries)}"
    return f"{trained} of at most {rounds.most} rounds of training and {of_questions} are counted{_up_to(whole, last)}"


def _up_to(whole: bool, last: int) -> str:
    if whole:
        return ""
    return f", up to round {last}; what a later round gives away is not" if last else "; what a round gives away is not"


def _mechanism(settings: StudySettings, plan: Plan) -> CertifiedMechanism:
    privacy, steps = settings.privacy, [(level, plan.mechanism(level)) for level in plan.levels]
    return CertifiedMechanism(
        scheme=privacy.rules.id,
        title=privacy.rules.title,
        noise_by=privacy.rules.noise.value,
        masked=privacy.masking is not None and privacy.masking.mask_updates,
        disclosure=privacy.disclosure,
        steps_per_round=plan.steps_per_round,
        max_steps=plan.max_steps,
        levels=[
            CertifiedLevel(
                level=level.value,
                relation=step.relation.value,
                clip_norm=step.clip_norm,
                noise_multiplier=step.noise_multiplier,
                sampling_rate=step.sampling_rate,
            )
            for level, step in steps
        ],
    )


def _rounds(found: Computed, plan: Plan) -> CertifiedRounds:
    kinds, charged = found.kinds, len(found.charged)
    return CertifiedRounds(
        most=plan.rounds,
        charged=charged,
        in_full=kinds["charged-in-full"],
        cancelled=kinds["cancelled"],
        steps=(charged - found.answered) * plan.steps_per_round,
    )


def _members(found: Computed) -> CertifiedMembers:
    least, most = found.members or (None, None)
    roster = found.standing.roster_sha256
    return CertifiedMembers(
        active=found.standing.members, least=least, most=most, roster_sha256=roster, roster_number=as_digits(roster)
    )


def _thinned(charged: Sequence[SpentAfter]) -> list[SpentAfterRound]:
    """At most MOST_POINTS of them, the first and the last among them."""
    last, gaps = len(charged) - 1, MOST_POINTS - 1
    places = range(len(charged)) if last <= gaps else [last * i // gaps for i in range(MOST_POINTS)]
    return [SpentAfterRound(round=charged[at].round, spent=list(charged[at].spent)) for at in places]
