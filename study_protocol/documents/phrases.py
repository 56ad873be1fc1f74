"""The meaning of ε in sentences that need no mathematics. Shares are rounded up: the attacker is never underrated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from accounting.budget.statements import VOID_SINCE_THE_END, VOID_WHILE_PLAIN
from accounting.plan.plan import Plan
from accounting.units import Level, Observer, Relation
from study_protocol.study.certificate import Certificate, CertifiedMean, CertifiedMembers, CertifiedRounds
from study_protocol.study.limit_statement import LimitStatement
from study_protocol.study.limit_words import limit_in_words
from study_protocol.wire.rounded import exact, number, percent

UNIT_NOUNS = {"instance": "patient", "client": "hospital"}
_TOOK_PART = {
    Relation.ADD_REMOVE: "took part",
    Relation.ZERO_OUT: "had its data used (that it is a member is known)",
    Relation.REPLACE_ONE: "has this record and not another one",
}


def made_of(rounds: Sequence[int]) -> str:
    """Return which rounds' models a mean is made of: `made of rounds 51 to 100`."""
    first, last = rounds[0], rounds[-1]
    if last - first + 1 == len(rounds):
        return f"made of rounds {first} to {last}"
    return f"made of {len(rounds)} of the rounds {first} to {last}"


def result_in_words(mean: CertifiedMean) -> str:
    """Return what a mean is made of, and whether its rounds count alike."""
    return f"{made_of(mean.rounds)}{', newer ones counting more' if mean.weights else ''}"


@dataclass(frozen=True)
class NamedFile:
    """The one file that people use. words: `result made of rounds 51 to 100`, or `model of round 12`."""

    words: str
    sha256: str
    bytes: int


def named_file(stated: Certificate) -> NamedFile | None:
    """Return the file that a certificate is about: the result, else the model. None: it names none."""
    if (result := stated.result) is not None:
        return NamedFile(f"result {result_in_words(result)}", result.sha256, result.bytes)
    if (model := stated.model) is not None:
        return NamedFile(f"model of round {model.version}", model.sha256, model.bytes)
    return None


def clip_norm(norm: float, *, adaptive: bool) -> str:
    """Return a clip norm of the settings, which is the one of the first round if it is adaptive."""
    return f"clip norm adaptive, starting at {exact(norm)}" if adaptive else f"clip norm {exact(norm)}"


def sees(observer: str, round_number: int, answered: int) -> str:
    """Return what an observer sees of a study.

    It may see more of rounds after `round_number`, which the numbers do not count.

    Args:
        answered: how many of the rounds were of questions.
    """
    if round_number == 0:
        models, period = "the initial model", "before the first round"
    elif round_number == 1:
        models, period = f"the {'answer' if answered else 'model'} that round 1 released", "in round 1"
    else:
        releases = "models and answers" if answered else "models"
        models, period = f"the {releases} that rounds 1 to {round_number} released", f"in rounds 1 to {round_number}"
    return {
        "releases": f"sees {models}, and this certificate",
        "coordinator": f"sees {models}, and all that the coordinator saw {period}",
    }[observer]


def meaning(limit: LimitStatement, plan: Plan, round_number: int, answered: int) -> str:
    """Return how well an attacker can still guess, for whom this limit holds, and against whom it does not.

    Args:
        round_number: the newest round that the limit counts.
        answered: how many of them were of questions.
    """
    unit_noun = UNIT_NOUNS[limit.level]
    if limit.state == "unbounded":
        return f"Nothing is promised to a single {unit_noun}: the noise of this study does not protect this level."
    if limit.spent is None or limit.attack_success is None:
        return f"More was spent than any finite ε covers: nothing is promised to a single {unit_noun} any more."
    took_part = _TOOK_PART[plan.protection(Level(limit.level)).relation]
    sentence = (
        f"An attacker who {sees(str(limit.observer), round_number, answered)}, who knows all other records, and who "
        f"gives equal odds to both, guesses rightly whether one {unit_noun} {took_part} with a probability of at most "
        f"{percent(limit.attack_success)} instead of 50 % "
        f"(ε = {number(limit.spent)}, δ = {exact_delta(limit)})."
    )
    guarantee = "" if limit.counted is None else f"Guaranteed: {limit_in_words(limit)}. "
    return f"{guarantee}{sentence} {on_average(limit)} {_for_whom(limit, unit_noun)}{_void(limit)}"


def on_average(limit: LimitStatement) -> str:
    """Return the source of the chance of a right guess, and that it is an average."""
    rare = "It is an average: on a rare output the attacker may be surer, which ε and δ bound."
    if (limit.certificate or {}).get("guess_from") == "loss-distribution":
        return f"That chance is over all that the plan may release, whenever the study stops. {rare}"
    reason = (
        "a Bayesian number has no loss distribution"
        if limit.definition == "bayesian"
        else "the losses of all that the plan may release are not known more exactly"
    )
    return f"That chance is what ε and δ allow, because {reason}. {rare}"


def hospitals(members: CertifiedMembers) -> str:
    """Return how many there were when rounds were reserved: one that left has been trained on, too."""
    smallest, largest = (members.active if count is None else count for count in (members.least, members.most))
    return (
        f"{smallest} to {largest} hospitals"
        if smallest != largest
        else "1 hospital"
        if largest == 1
        else f"{largest} hospitals"
    )


def exact_delta(limit: LimitStatement) -> str:
    """Return δ of a limit, or an empty text without one."""
    return "" if limit.delta is None else exact(limit.delta)


def _for_whom(limit: LimitStatement, unit_noun: str) -> str:
    if limit.definition == "classical":
        return f"This holds for every {unit_noun}, whatever else the attacker knows."
    return (
        f"This holds on average over {unit_noun}s like those that the study measured; a {unit_noun} unlike them is "
        "covered by the classical limit alone."
    )


def _void(limit: LimitStatement) -> str:
    assumption = str((limit.certificate or {}).get("assumption", ""))
    reasons = [void for void in (VOID_WHILE_PLAIN, VOID_SINCE_THE_END) if void in assumption]
    return f" It {reasons[0]}." if reasons else ""


def budget_line(limit: LimitStatement) -> str:
    """Return how much of a limit is spent, for people."""
    kind = f"{UNIT_NOUNS[limit.level]}, {limit.definition}"
    return f"{kind}: {'not protected' if limit.epsilon is None else limit_in_words(limit)}"


def observer_phrase(observer: Observer, round_number: int, answered: int) -> str:
    """Return against whom the numbers hold, as a sentence's subject."""
    return f"an observer who {sees(observer, round_number, answered)}"


def training_rounds(rounds: CertifiedRounds, steps_per_round: int) -> int:
    """Return how many of the charged rounds trained. The others were of questions, which take no step."""
    return rounds.steps // steps_per_round


def charged_rounds(rounds: CertifiedRounds, steps_per_round: int) -> str:
    """Return how many rounds are charged, and how many of them were of questions."""
    trained = training_rounds(rounds, steps_per_round)
    if trained == rounds.charged:
        return f"{trained} charged of at most {rounds.most}"
    return f"{trained} of training charged of at most {rounds.most}, and {questions(rounds.charged - trained)}"


def questions(number: int) -> str:
    """Return so many questions in words."""
    return "1 question" if number == 1 else f"{number} questions"
