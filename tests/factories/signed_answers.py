"""Queries as a coordinator shows them, and answers signed with a key of the tests."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from study_protocol.queries.answer import NoisedSum
from study_protocol.queries.kinds import Question
from study_protocol.study.queries import PublishedAnswer, Query, QueryDocument, QueryNoise, SignedAnswer
from study_protocol.wire.signing import QUERY_ANSWER, encode_public_key, sign_document
from tests.factories.questions import DOCUMENTS, exact, patients, question

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = encode_public_key(KEY.public_key())


def document(kind: str = "table", **entries: Any) -> QueryDocument:
    """A question of the factory, whole."""
    return QueryDocument(question=question(DOCUMENTS[kind], **entries))


def shown(asked: QueryDocument, *, state: str = "waiting", number: int = 1, **fields: Any) -> Query:
    """The query as a coordinator shows it. Two of three hospitals are needed."""
    values: dict[str, Any] = {
        "study": "registry",
        "number": number,
        "sha256": asked.digest(),
        "document": asked,
        "state": state,
        "created_at": datetime(2026, 1, 2, tzinfo=UTC),
        "round": None,
        "reason": None,
        "allowed": 1,
        "refused": 0,
        "needed": 2,
        "consents": None,
        "answered": None,
    }
    return Query.model_validate(values | fields)


def published(asked: QueryDocument, *, number: int = 1, **fields: Any) -> PublishedAnswer:
    """The exact counts of 300 patients as an answer, unless `fields` has another."""
    kind: Question = asked.question
    answer = fields["answer"] if "answer" in fields else kind.answer(NoisedSum(exact(kind, patients(300)), 0.0, 1))
    values: dict[str, Any] = {
        "study": "registry",
        "query": number,
        "sha256": asked.digest(),
        "round": 4,
        "hospitals": 3,
        "noise": QueryNoise(guaranteed=4.0, present=4.5, spacing=2.0**-16),
        "answer": answer,
        "warning": "No noise protects against a hospital that sends false values.",
        "ledger_entries": 7,
        "ledger_sha256": "ab" * 32,
    }
    return PublishedAnswer.model_validate(values | fields)


def answered(asked: QueryDocument, *, key: Ed25519PrivateKey = KEY, **fields: Any) -> Query:
    """An answered query, signed by `key`."""
    place = fields.pop("place", None)
    said = published(asked, **fields)
    # Without a place it is shown as query 1, whatever its answer says.
    number = 1 if place is None else said.query
    signature = sign_document(key, QUERY_ANSWER, said.model_dump(mode="json"))
    answered = SignedAnswer(published=said, signature=signature)
    return shown(asked, state="answered", round=4, number=number, answered=answered, place=place)
