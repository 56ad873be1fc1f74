"""A query from its question to its signed answer, as it travels."""

from __future__ import annotations

import hashlib
import json
from fractions import Fraction
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import ValidationError

from study_protocol.study.model_info import ModelInfo
from study_protocol.study.queries import Consent, QueryAsked, QueryDocument
from study_protocol.wire.signing import SigningError
from tests.factories.regressions import later_steps, regression
from tests.factories.signed_answers import KEY, answered, document, published, shown

ASKED = document("count")
MODEL = ModelInfo(version=2, sha256="a" * 64, bytes=9)


def canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def test_a_document_is_named_by_its_canonical_json() -> None:
    assert ASKED.digest() == hashlib.sha256(canonical(ASKED.model_dump(mode="json"))).hexdigest()
    # The same question about later records is another query.
    later = ASKED.model_copy(update={"data_version": "2"})
    assert later.digest() != ASKED.digest()
    assert QueryDocument.model_validate_json(ASKED.model_dump_json()).digest() == ASKED.digest()


def test_what_a_person_approves_is_the_question_and_the_model_that_it_is_about() -> None:
    alone = QueryAsked(number=1, document=ASKED)
    about = QueryAsked(number=1, document=ASKED, model=MODEL)
    assert alone.charged_digest == ASKED.digest()
    assert alone.approved_digest == ASKED.digest() == shown(ASKED).approved_digest
    expected = hashlib.sha256(canonical({"model": "a" * 64, "query": ASKED.digest()})).hexdigest()
    assert about.approved_digest == expected == shown(ASKED, model=MODEL).approved_digest


def test_the_charge_covers_the_noise_that_the_question_names() -> None:
    """s / Δ of the grid is never below the multiplier, in fractions."""
    for kind in ("count", "table", "moments"):
        asked = document(kind, noise_multiplier=5.3)
        cost = asked.cost()
        assert Fraction(cost.noise_std) >= Fraction(5.3) * Fraction(cost.sensitivity)
        assert cost.noise_std / cost.sensitivity == pytest.approx(5.3, rel=1e-4)
        assert cost.cells == asked.question.cells


def test_an_answer_is_believed_if_the_coordinator_signed_it_to_this_question() -> None:
    answered(ASKED).require_believable(KEY.public_key())
    shown(ASKED).require_believable(KEY.public_key())
    with pytest.raises(SigningError, match="not the one that its digest names"):
        shown(ASKED, sha256="0" * 64).require_believable(KEY.public_key())
    with pytest.raises(SigningError, match="another question's"):
        answered(ASKED, query=2).require_believable(KEY.public_key())
    stranger = Ed25519PrivateKey.from_private_bytes(bytes(32))
    with pytest.raises(SigningError):
        answered(ASKED).require_believable(stranger.public_key())


def test_a_query_about_no_model_is_written_as_earlier_versions_read_it() -> None:
    assert "model" not in shown(ASKED).model_dump(mode="json")
    assert shown(ASKED, model=MODEL).model_dump(mode="json")["model"]["version"] == 2
    assert published(ASKED).model_dump(mode="json")["study"] == "registry"


@pytest.mark.parametrize("entries", [{"allowed": 1}, {"allowed": True, "code": "Not a code"}, {"detail": "x"}], ids=str)
def test_a_consent_is_a_plain_yes_or_no_with_a_code(entries: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Consent.model_validate(entries)


def test_all_steps_of_a_question_are_approved_as_one_and_paid_for_each_by_itself() -> None:
    steps = later_steps(regression())
    for shown_of in (lambda step: shown(step), lambda step: QueryAsked(number=1, document=step)):
        queries = [shown_of(step) for step in steps]
        assert {query.approved_digest for query in queries} == {steps[0].digest()}
        assert [query.charged_digest for query in queries] == [step.digest() for step in steps]
    assert [(step.step, step.steps) for step in steps] == [(1, 3), (2, 3), (3, 3)]
    assert steps[1].costs() == tuple(step.cost() for step in steps[1:])
    # A question of one step is its own first step.
    assert (ASKED.step, ASKED.steps, ASKED.first_step(), ASKED.costs()) == (1, 1, ASKED, (ASKED.cost(),))
