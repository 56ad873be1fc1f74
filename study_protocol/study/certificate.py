"""A study's privacy as one signed document: everything in it follows from the ledger, but for what its time says."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal, Self

from pydantic import AwareDatetime, Field, model_validator

from accounting.plan.schemes import SchemeName
from study_protocol.study.limits import LevelName
from study_protocol.study.messages import LimitStatement, ModelInfo, Percentile, Signature, StopReason, StudyState
from study_protocol.study.noise_schedule import NoiseSchedule
from study_protocol.study.privacy import Disclosure
from study_protocol.wire.octets import EncodedKey
from study_protocol.wire.text import Text
from study_protocol.wire.values import Finite, Message, Name, Positive, Rate, Sha256, Whole

FORMAT = "wardround/1/certificate"
Format = Literal["wardround/1/certificate"]
# Points of the curve: more would not be seen in a chart.
MAX_POINTS = 200


class CertifiedLimit(LimitStatement):
    """A limit as the budget states it, and in words what it means."""

    meaning: Text = Field(description="what an attacker can guess, and for whom it holds")


class CertifiedLevel(Message):
    """One noised step as one level sees it."""

    level: LevelName = Field(description="who is protected")
    relation: Text = Field(description="what is compared: add-remove, zero-out or replace-one")
    clip_norm: Positive = Field(description="L2 norm of the most that one neighbour changes")
    # Left out where it is not: certificates of other studies stay as earlier versions sign them.
    adaptive: bool = Field(
        default=False,
        exclude_if=lambda value: not value,
        description="the clip norm moves between rounds, and the noise with it: clip_norm is that of the first round",
    )
    noise_multiplier: Positive = Field(description="noise that is sure in every round / clip_norm, rounded down")
    sampling_rate: Rate = Field(description="Poisson rate that is credited; 1: none is")


class CertifiedMechanism(Message):
    scheme: SchemeName = Field(description="the way of adding noise")
    title: Text = Field(description="the same in words")
    noise_by: Text = Field(description="who adds the noise that is counted on")
    masked: bool = Field(description="whether the coordinator sees sums of updates only")
    disclosure: Disclosure = Field(description="what is seen of log-moments, and when")
    steps_per_round: Whole = Field(ge=1, description="noised steps a round")
    max_steps: Whole = Field(ge=1, description="most noised steps of the study")
    noise_schedule: NoiseSchedule | None = Field(
        default=None,
        exclude_if=lambda schedule: schedule is None,
        description="stages of rounds, each with a factor on the settings' noise multiplier. Left out: equal noise",
    )
    levels: list[CertifiedLevel] = Field(description="for each level that is protected")


class CertifiedRounds(Message):
    most: Whole = Field(ge=0, description="most rounds that can be charged")
    charged: Whole = Field(ge=0, description="how many were")
    in_full: Whole = Field(ge=0, description="of these, at their worst, because they were abandoned")
    cancelled: Whole = Field(ge=0, description="reserved, and free: nothing had left any building")
    steps: Whole = Field(ge=0, description="noised steps that were charged")


class CertifiedMembers(Message):
    """The number of members. A certificate never says who they are."""

    active: Whole = Field(ge=0, description="hospitals with the study's counted entry")
    least: Whole | None = Field(description="fewest that a round was reserved with; null before the first round")
    most: Whole | None = Field(description="most that a round was reserved with")
    roster_sha256: Sha256 = Field(description="fingerprint of their names and keys")
    roster_number: Text = Field(description="the same as people read it to each other")


class SpentAfterRound(Message):
    round: Whole = Field(ge=1, description="which round")
    spent: list[Finite | None] = Field(description="ε of each limit after it, in the order of `limits`")


class CertifiedLedger(Message):
    """`entries` and `sha256` are of the whole ledger at the time of issue. Numbers count up to the entry `counted`."""

    entries: Whole = Field(ge=1, description="length of the ledger")
    sha256: Sha256 = Field(description="hash of its newest entry")
    signature: Signature = Field(description="the coordinator's, on that head")
    counted: Whole = Field(ge=1, description="the numbers are those after this entry")
    released: Whole | None = Field(
        default=None, ge=1, description="the entry that names the model's file; null: no entry does"
    )


class CertifiedMean(Message):
    """The study's result where it is a mean of released models: its file, and what it is made of."""

    sha256: Sha256 = Field(description="of the result's file, as GET …/models/result returns it")
    bytes: Whole = Field(ge=1, description="size of that file")
    rounds: list[Whole] = Field(min_length=2, description="whose released models it is made of, ascending")
    weights: list[Rate] = Field(
        default=[], exclude_if=lambda value: not value, description="what each of them counts. Left out: all alike"
    )

    @model_validator(mode="after")
    def _fits_itself(self) -> Self:
        places = [0, *self.rounds]
        if any(after <= before for before, after in pairwise(places)) or len(self.weights) not in (0, len(self.rounds)):
            raise ValueError("a mean names each of its rounds once, in order, with a weight for each or for none")
        return self


class CertifiedHospital(Message):
    """What the noised distances of one hospital's patients show. A certificate never says which hospital it is."""

    counts: list[Finite] = Field(min_length=2, description="noised patients by bin of their loss, lowest bin first")
    epsilon: Finite = Field(ge=0, description="bound for a patient drawn from these, at the limit's δ, noise counted")
    estimate: Finite | None = Field(
        ge=0, description="ε of these patients, estimated: no guarantee. null: the noise hides how many they are"
    )
    estimate_low: Finite = Field(ge=0, description="its 95 % interval, of noise and of bins, begins here")
    estimate_high: Finite = Field(ge=0, description="and ends here")
    clipped: Finite | None = Field(
        description="share of patients who were clipped in nearly every step. null: the noise hides it"
    )
    clipped_low: Finite = Field(description="its 95 % interval begins here")
    clipped_high: Finite = Field(description="and ends here")


class CertifiedDistances(Message):
    """The answer to a question of kind distances by hospital: for whom the Bayesian number does not speak."""

    query: Whole = Field(ge=1, description="which query. Its signed answer names the hospitals")
    round: Whole = Field(ge=1, description="the round that answered it. Later rounds count at their worst")
    noise: Positive = Field(description="standard deviation of the noise in each count")
    failure: Rate = Field(
        description="chance that one of these ε is too small, by its sample or by the noise. Each has it"
    )
    pooled: CertifiedHospital = Field(description="the patients of all hospitals in the sum")
    hospitals: list[CertifiedHospital] = Field(min_length=1, description="the least favourable first")
    words: list[Text] = Field(description="what it means")


class NistAnswer(Message):
    """One thing that NIST SP 800-226 asks of a claim of differential privacy."""

    part: Literal["guarantee", "mechanism", "hazards"] = Field(description="where it belongs")
    asks: Text = Field(description="what is asked")
    answer: Text = Field(description="the answer for this study")


class HowToVerify(Message):
    shows: Text = Field(description="what it shows")
    command: Text = Field(description="what to type")


class Certificate(Message):
    """The content that is signed.

    round  the newest round whose charge is counted, 0 before the first
    model  the model that this round released, or the newest one. It is null if there is none
    result  the study's result, which people use, if it is a mean of several released models. It is left out if it is
        `model` itself, and in the certificate of one round
    state  as the ledger says it if it names models: enrolling, running (paused or not) or finished
    """

    format: Format = Field(description="this form of the document")
    study: Name = Field(description="which study")
    title: Text = Field(max_length=200, description="for people")
    state: StudyState = Field(description="how far the study had come")
    stop_reason: StopReason | None = Field(description="why it is finished")
    issued_at: AwareDatetime = Field(description="when this was issued")
    coordinator_key: EncodedKey = Field(description="whose signature this is")
    coordinator_fingerprint: Sha256 = Field(description="of that key, as people compare it")
    settings_sha256: Sha256 = Field(description="digest of the study's settings")
    round: Whole = Field(ge=0)
    model: ModelInfo | None
    result: CertifiedMean | None = Field(
        default=None, exclude_if=lambda value: value is None, description="mean of released models that people use"
    )
    summary: list[Text] = Field(description="in plain words")
    limits: list[CertifiedLimit] = Field(description="as the budget states them")
    distances: CertifiedDistances | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="by hospital, if the study asked for it. Left out: it did not, or in the certificate of one round",
    )
    percentiles: list[Percentile] = Field(description="ε by share of the population, where it is measured")
    mechanism: CertifiedMechanism = Field(description="how noise is added")
    rounds: CertifiedRounds = Field(description="how many")
    members: CertifiedMembers = Field(description="how many hospitals")
    spent_after: list[SpentAfterRound] = Field(
        max_length=MAX_POINTS, description="ε by round; of many rounds, some evenly spread, the first and the last"
    )
    who_sees_what: list[Text] = Field(description="one sentence each")
    under_masks: list[Text] = Field(description="what the secure sum promises; empty without one")
    nist: list[NistAnswer] = Field(description="what NIST SP 800-226 asks, and the answer")
    ledger: CertifiedLedger = Field(description="what the numbers were computed from")
    verify: list[HowToVerify] = Field(description="how to check this document")


class SignedCertificate(Message):
    certificate: Certificate = Field(description="what is signed")
    signature: Signature = Field(description="the coordinator's, under the certificate label")
