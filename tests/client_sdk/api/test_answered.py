"""Answers that are verified with the coordinator's key, and read as data frames."""

from __future__ import annotations

import re
import sys

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from client_sdk.api.answered import Answered, names, verified
from client_sdk.errors import AnswerNotSigned, ConfigurationError
from study_protocol.wire.signing import decode_public_key, fingerprint
from tests.factories.signed_answers import PUBLIC, answered, document, published, shown

ASKED = document()
MARK = fingerprint(decode_public_key(PUBLIC))


def answer() -> Answered:
    return verified(answered(ASKED), ASKED, PUBLIC, None)


def test_an_answer_is_the_coordinator_s_to_this_very_question() -> None:
    found = answer()
    assert (found.published, found.key, found.pinned) == (published(ASKED), PUBLIC, False)
    assert (found.hospitals, found.noise.present, found.warning) == (3, 4.5, published(ASKED).warning)
    assert found.notes == published(ASKED).answer.notes
    for known in (PUBLIC, MARK, " ".join([MARK[:32].upper(), MARK[32:]])):
        assert verified(answered(ASKED), ASKED, PUBLIC, known).pinned


def test_an_answer_that_was_changed_on_the_way_is_not_believed() -> None:
    query = answered(ASKED)
    assert query.answered is not None
    other = query.answered.model_copy(update={"published": published(ASKED, hospitals=4)})
    with pytest.raises(AnswerNotSigned, match="signature"):
        verified(query.model_copy(update={"answered": other}), ASKED, PUBLIC, PUBLIC)
    with pytest.raises(AnswerNotSigned, match="something else"):
        verified(query, document(noise_multiplier=7.0), PUBLIC, None)
    with pytest.raises(AnswerNotSigned, match="shows no answer"):
        verified(shown(ASKED, state="answered"), ASKED, PUBLIC, None)
    with pytest.raises(AnswerNotSigned, match="another key than the one that you know"):
        verified(query, ASKED, PUBLIC, "0" * 64)


@pytest.mark.parametrize("entries", [{"query": 2}, {"study": "other"}, {"sha256": "0" * 64}], ids=str)
def test_the_signed_answer_to_another_question_is_none_to_this_one(entries: dict[str, object]) -> None:
    """Signed with the right key."""
    query = answered(ASKED)
    assert query.answered is not None
    signed = answered(ASKED, **entries).answered  # type: ignore[arg-type]
    with pytest.raises(AnswerNotSigned, match="another question's"):
        verified(query.model_copy(update={"answered": signed}), ASKED, PUBLIC, None)


def test_what_a_stranger_signed_is_not_believed() -> None:
    stranger = Ed25519PrivateKey.from_private_bytes(bytes(32))
    with pytest.raises(AnswerNotSigned, match="not what the coordinator signed"):
        verified(answered(ASKED, key=stranger), ASKED, PUBLIC, None)
    with pytest.raises(AnswerNotSigned):
        verified(answered(ASKED), ASKED, "no key", None)


def test_a_person_means_a_key_by_itself_or_by_its_fingerprint_in_groups() -> None:
    grouped = "-".join(re.findall("....", MARK)).upper()
    assert all(names(text, PUBLIC, MARK) for text in (f" {PUBLIC}\n", MARK, grouped, MARK.replace("a", "A")))
    assert not any(names(text, PUBLIC, MARK) for text in (PUBLIC.swapcase(), MARK[:-1], "", MARK + "0"))


def test_tables_are_named_and_become_data_frames() -> None:
    found = answer()
    assert [table.name for table in found.tables] == ["table", "shares", "patients"]
    assert found.table() == found.tables[0]
    frame = found.frame("patients")
    assert frame["estimate"].tolist() == [300]
    assert list(found.frame().columns)[:2] == ["sex", "age"]
    assert found.frame().attrs == {"title": "patients", "notes": list(found.notes), "warning": found.warning}
    with pytest.raises(KeyError, match="no table 'nothing': the answer has table, shares, patients"):
        found.frame("nothing")
    assert "<table" in found._repr_html_()
    assert repr(found).startswith("Answered('registry', query 1, 3 hospitals")
    assert repr(found).endswith("tables: table, shares, patients)")


def test_without_pandas_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ConfigurationError, match=r"wardround\[frames\]"):
        answer().frame()
