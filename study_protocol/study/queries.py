"""A query from its question to its signed answer, as it travels."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Annotated, Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import AwareDatetime, Field

from accounting.plan.queries import QueryCost
from study_protocol.queries.answer import Answer
from study_protocol.queries.kinds import Question
from study_protocol.study.limits import LevelName
from study_protocol.study.model_info import ModelInfo
from study_protocol.wire.signing import QUERY_ANSWER, SigningError, canonical_json, verify_document
from study_protocol.wire.text import Text
from study_protocol.wire.values import Finite, Message, Name, Positive, Sha256, Whole

QueryState = Literal["waiting", "asked", "answered", "failed"]
DataVersion = Annotated[Text, Field(min_length=1, max_length=64)]


class QueryDocument(Message):
    """The question, whole and public. Equal documents are one query, answered and charged once.

    data_version  the name that people at the hospitals have given to the records as they are now, never a digest of
                  them. The same question about later records is another query
    """

    question: Question = Field(description="what is asked")
    data_version: DataVersion = Field(
        default="1", description="version of the records. Hospitals refuse any but their own"
    )

    def digest(self) -> str:
        """Return the SHA-256 (hex) of the canonical JSON, by which assignments and the ledger name it."""
        return hashlib.sha256(canonical_json(self.model_dump(mode="json"))).hexdigest()

    def digest_with(self, model: str | None) -> str:
        """Return the digest of this question and, if it is about a model, of the model's SHA-256 (hex)."""
        if model is None:
            return self.digest()
        return hashlib.sha256(canonical_json({"query": self.digest(), "model": model})).hexdigest()

    def in_form_for(self, protocol: int) -> QueryDocument:
        """Return the document with its question as in `BaseQuestion.in_form_for`."""
        return self._with(self.question.in_form_for(protocol))

    def of_hospitals(self, hospitals: Iterable[str]) -> QueryDocument:
        """Return the document with its question as in `BaseQuestion.of_hospitals`."""
        return self._with(self.question.of_hospitals(tuple(hospitals)))

    @property
    def steps(self) -> int:
        """How many sums the question asks for, one after another."""
        return self.question.sums

    @property
    def step(self) -> int:
        """Which of them this document asks for, from 1."""
        return self.question.sums - len(self.question.costs_after())

    def first_step(self) -> QueryDocument:
        """Return the document that people approve, once for all steps. A question of one step is its own."""
        return self._with(self.question.approved_form())

    def next_step(self, answer: Answer) -> QueryDocument | None:
        """Return the step to which the answer of this one leads, or None if no step follows.

        Raises:
            ValueError: the answer is none to this step.
        """
        question = self.question.next_question(answer)
        return None if question is None else self._with(question)

    def _with(self, question: Question) -> QueryDocument:
        return self if question is self.question else self.model_copy(update={"question": question})

    def costs(self) -> tuple[QueryCost, ...]:
        """Return the charge of this step and of all after it. Raises InvalidArgument as `cost`."""
        return (self.cost(), *self.question.costs_after())

    def cost(self) -> QueryCost:
        """Return the charge to every limit. Raises InvalidArgument: noise or size beyond what can be drawn."""
        grid = self.question.grid()
        return QueryCost(grid.std, grid.sensitivity, self.question.cells, self.question.bears)


class LimitAfter(Message):
    """The effect of a query on one limit."""

    level: LevelName = Field(description="who is protected")
    definition: Literal["classical", "bayesian"] = Field(description="in which sense")
    epsilon: Positive = Field(description="the limit")
    before: Finite = Field(
        description="ε charged so far. With questions alone or enforcement gaussian-filter: if the study ended here "
        "for reasons that do not depend on its results. The limit holds for every stop"
    )
    after: Finite | None = Field(
        description="the same once this query is charged, under the same condition. null where it is unbounded"
    )


class QueryForecast(Message):
    """The cost of a query, without asking any hospital."""

    sha256: Sha256 = Field(description="digest of the document")
    known: int | None = Field(description="number of the same query, which was asked before. It costs nothing more")
    allowed: bool = Field(description="whether the budget allows it now")
    reason: Text | None = Field(description="why not")
    cells: int = Field(description="numbers in the sum")
    sensitivity: Positive = Field(description="Δ: what one patient can change, L2")
    noise_std: Positive = Field(description="s: standard deviation of the noise that is sure, on each number")
    noise_expected: Positive = Field(description="the same, if every hospital that takes part now answers")
    limits: list[LimitAfter] = Field(description="every limit of the study")
    least_noise_multiplier: Positive | None = Field(description="the least that fits the limits now. null: none does")
    sums: Annotated[Whole, Field(ge=1)] = Field(
        default=1,
        exclude_if=lambda sums: sums == 1,
        description="sums that are asked for, one after another. The limits count all of them",
    )


class Consent(Message):
    """A hospital's word on a query, before its round begins. `detail` must not hold anything about patients."""

    allowed: bool = Field(description="whether it will take part", strict=True)
    code: str = Field(default="", pattern=r"^[a-z0-9-]{0,64}$", description="why not, for programs")
    detail: Text = Field(default="", max_length=500, description="why not, for people")


class HospitalsConsent(Message):
    client: Name = Field(description="which hospital")
    consent: Consent = Field(description="what it says")


class QueryNoise(Message):
    """The noise of an answer, on the scale of one patient's part."""

    guaranteed: Positive = Field(description="standard deviation that is sure to protect: what is charged")
    present: Positive = Field(description="standard deviation that is really in every number")
    spacing: Positive = Field(description="grid step")


class PublishedAnswer(Message):
    """The content that the coordinator signs of an answered query."""

    study: Name = Field(description="which study")
    query: int = Field(ge=1, description="which query")
    sha256: Sha256 = Field(description="digest of its document")
    round: int = Field(ge=1, description="the round that answered it")
    hospitals: int = Field(ge=1, description="how many are in the sum")
    noise: QueryNoise = Field(description="what its errors come from")
    answer: Answer = Field(description="estimates with errors and intervals")
    warning: Text = Field(description="what no noise protects against")
    ledger_entries: int = Field(ge=1, description="length of the ledger at the entry that charged it")
    ledger_sha256: Sha256 = Field(description="hash of that entry")


class SignedAnswer(Message):
    published: PublishedAnswer = Field(description="what is signed")
    signature: str = Field(description="the coordinator's Ed25519, base64url")

    def require_signed(self, key: Ed25519PublicKey) -> None:
        """Raises SigningError: it is not what the owner of this key has signed."""
        verify_document(key, QUERY_ANSWER, self.published.model_dump(mode="json"), self.signature)


class SynthesisPlace(Message):
    """The place of a query among the questions of a study's synthesis."""

    stage: int = Field(ge=1, description="which question of the rule it is, from 1")
    kept: Finite = Field(ge=0, description="Σ 1 / noise_multiplier² that is kept for the questions after it")
    words: Text = Field(description="what follows, what is kept and what is free again, for people")


class StepPlace(Message):
    """The place of a query among the steps of one question."""

    step: int = Field(ge=1, description="which step it is, from 1")
    steps: int = Field(ge=2, description="how many there are")
    first: int = Field(ge=1, description="number of the query that was asked, the first step")
    next: int | None = Field(description="number of the query that followed from its answer. null: none did")
    kept: Finite = Field(ge=0, description="Σ 1 / noise_multiplier² that is kept for the steps after it")
    words: Text = Field(description="what follows, what is kept and what is free again, for people")


class Query(Message):
    """A query and how far it has come."""

    study: Name = Field(description="which study")
    number: int = Field(ge=1, description="from 1")
    sha256: Sha256 = Field(description="digest of the document")
    document: QueryDocument = Field(description="what is asked")
    model: ModelInfo | None = Field(
        default=None,
        # An earlier version knows no such field. No study that needs this one asks it about models.
        exclude_if=lambda model: model is None,
        description="the released model that it is about, if any",
    )
    state: QueryState = Field(description="waiting: for consent or for its turn. asked: its round is under way")
    created_at: AwareDatetime = Field(description="when it was first asked")
    reserved_until: AwareDatetime | None = Field(
        default=None,
        # Shown to leads and auditors alone: hospitals may run programs that do not know it.
        exclude_if=lambda at: at is None,
        description="of one that waits, for leads and auditors: until when its cost is kept. Undecided then, it fails",
    )
    round: int | None = Field(description="the round that answers it")
    reason: Text | None = Field(description="why it failed. Asking again starts a new attempt")
    allowed: int = Field(description="hospitals that will take part")
    refused: int = Field(description="hospitals that will not")
    needed: int = Field(description="hospitals without whom it is not asked")
    consents: list[HospitalsConsent] | None = Field(
        description="each hospital's consent, for leads and auditors. A hospital sees its own"
    )
    answered: SignedAnswer | None = Field(description="the answer, once there is one. Lists leave it out")
    synthesis: SynthesisPlace | None = Field(
        default=None,
        # Only programs that know the section join a study that has one.
        exclude_if=lambda place: place is None,
        description="of a question in the form of the study's synthesis",
    )
    place: StepPlace | None = Field(
        default=None,
        # Only programs that know the kind read such a question.
        exclude_if=lambda place: place is None,
        description="of a question in steps, such as kind glm",
    )

    def require_believable(self, key: Ed25519PublicKey) -> None:
        """Check that the answer, if there is one, is the coordinator's to this very question.

        `key` is the coordinator's.

        Raises:
            SigningError: it is not.
        """
        if self.document.digest() != self.sha256:
            raise SigningError("bad-signature", "the question is not the one that its digest names")
        if self.answered is None:
            return
        self.answered.require_signed(key)
        stated = self.answered.published
        if (stated.study, stated.query, stated.sha256) != (self.study, self.number, self.sha256):
            raise SigningError("bad-signature", "the answer is another question's")

    @property
    def approved_digest(self) -> str:
        """The digest under which a hospital's approval of it is kept: of a question in steps that of the first one."""
        return self.document.first_step().digest_with(None if self.model is None else self.model.sha256)

    @property
    def charged_digest(self) -> str:
        """The digest under which a hospital pays for it: of this very step."""
        return self.document.digest_with(None if self.model is None else self.model.sha256)


class QueryList(Message):
    queries: list[Query] = Field(description="in order of their numbers")
    next: int | None = Field(default=None, description="ask for more with `after`, null at the end")


class QueryAsked(Message):
    """The query that an assignment of kind `query` names."""

    number: int = Field(ge=1, description="from 1")
    document: QueryDocument = Field(description="what is asked")
    model: ModelInfo | None = Field(default=None, description="the released model that it is about. null: none")

    @property
    def approved_digest(self) -> str:
        """The digest under which a hospital's approval of it is kept: of a question in steps that of the first one."""
        return self.document.first_step().digest_with(None if self.model is None else self.model.sha256)

    @property
    def charged_digest(self) -> str:
        """The digest under which a hospital pays for it: of this very step."""
        return self.document.digest_with(None if self.model is None else self.model.sha256)
