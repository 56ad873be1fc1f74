"""The letter from a hospital's own ledgers: rounds, dates and bounds, with a certificate and without one."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from client_sdk.errors import ConfigurationError, LedgerNotExtended
from client_sdk.guard.charges import Charge, epsilon_spent
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from client_sdk.guard.objections import Objection
from client_sdk.guard.people import DecidingPerson
from client_sdk.guard.policy import SitePolicy
from client_sdk.study.objecting import last_entries
from client_sdk.study.objection_facts import letter_of, presence_in
from private_learning.records import Table
from study_protocol.documents.certify import Facts, compute_account, issue_certificate
from study_protocol.documents.check import OpenedCertificate
from study_protocol.documents.objection_letter import ObjectionLetter
from study_protocol.documents.phrases import number, percent
from study_protocol.study.messages import ModelInfo
from study_protocol.wire.signing import LEDGER_HEAD, encode_public_key, sign_document
from tests.factories import certificates
from tests.factories.coordinator_in_process import Coordinator
from tests.factories.hospitals import coordinator, hospital, lax_toml, records
from tests.factories.participations import ledger_of
from tests.factories.settings import settings

NOW = datetime(2026, 11, 27, tzinfo=UTC)
LIMITS = "[limits.instance]\nepsilon = 60.0\ndelta = 1e-6\norder = 1.3\n"


def taken_part(home: Path, policy: str = "", **study: Any) -> Coordinator:
    other = coordinator(settings(**study))
    here = hospital(other, home)
    (home / "policy.toml").write_text(lax_toml() + policy)
    here.join("sepsis", None, records(), dataset="icu")
    return other


def letter(home: Path, *documents: OpenedCertificate, ledgers: dict[str, int | None] | None = None) -> ObjectionLetter:
    seen = last_entries(home) if ledgers is None else ledgers
    objection = Objection(1, "ab" * 32, NOW.isoformat(), NOW.isoformat(), DecidingPerson.acting("Ada"), seen)
    return letter_of(home, objection, SitePolicy.in_force(home), documents, "", NOW)


def certificate(other: Coordinator, monkeypatch: pytest.MonkeyPatch, key: Any = None) -> OpenedCertificate:
    """That of the coordinator's own ledger, signed with its key or another one."""
    account = compute_account(other.entries)
    signer = other.key if key is None else key
    head = {"study": "sepsis", "entries": account.entries, "sha256": account.sha256}
    facts = Facts(
        *("Sepsis", "finished", "max-steps-reached", NOW, encode_public_key(signer.public_key())),
        head_signature=sign_document(signer, LEDGER_HEAD, head),
        model=ModelInfo(version=3, sha256="ab" * 32, bytes=160),
    )
    monkeypatch.setattr(certificates, "KEY", signer)
    return certificates.sealed(issue_certificate(account, facts).model_dump(mode="json"))


def test_a_hospital_without_a_study_has_a_letter(tmp_path: Path) -> None:
    written = letter(tmp_path)
    assert written.studies == ()
    assert "In none" in written.document().to_markdown()


@pytest.mark.parametrize("study", [{}, {"bayesian": True}], ids=["classical", "bayesian"])
def test_its_numbers_are_those_of_the_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, study: dict[str, Any]
) -> None:
    """From the hospital's copy of the ledger, and from the certificate: the same, as the certificate states them."""
    other = taken_part(tmp_path, **study)
    document = certificate(other, monkeypatch)
    for written in (letter(tmp_path), letter(tmp_path, document)):
        (one,) = written.studies
        assert [(each.number, each.kind) for each in one.rounds] == [(n, "training") for n in (1, 2, 3)]
        with ledger_of(tmp_path) as ledger:
            assert {each.day for each in one.rounds} == {each.ready_at[:10] for each in ledger.departures()}
        stated = {each.definition: each for each in document.certificate.limits if each.level == "instance"}
        names = {"classical": "classical", "Bayesian": "bayesian"}
        assert {names[bound.name] for bound in one.bounds} == set(stated)
        text = written.document().to_markdown()
        for bound in one.bounds:
            limit = stated[names[bound.name]]
            assert bound.epsilon == pytest.approx(limit.spent, rel=1e-9)
            assert number(limit.spent) in text
            assert percent(limit.attack_success or 1.0) in text
    assert "the certificate up to round 3, whose signature was checked" in text
    assert "as this hospital checked it" in letter(tmp_path).document().to_markdown()


def test_rounds_after_the_objection_are_not_in_it(tmp_path: Path) -> None:
    taken_part(tmp_path)
    with ledger_of(tmp_path) as ledger:
        second = next(each.sequence for each in ledger.entries if (each.kind, each.round) == ("reserved", 2))
    (one,) = letter(tmp_path, ledgers={"icu": second}).studies
    assert [each.number for each in one.rounds] == [1, 2]
    (one,) = letter(tmp_path, ledgers={"icu": second - 1}).studies
    assert [each.number for each in one.rounds] == [1]
    # A data set that came later never held a round with this patient. One that could not be read may have.
    assert letter(tmp_path, ledgers={}).studies == ()
    unread = letter(tmp_path, ledgers={"icu": None})
    assert [each.number for each in unread.studies[0].rounds] == [1, 2, 3]
    assert unread.unread == ("icu",)


def test_the_hospitals_own_limit_is_in_it(tmp_path: Path) -> None:
    taken_part(tmp_path, LIMITS)
    policy = SitePolicy.in_force(tmp_path)
    with ledger_of(tmp_path) as ledger:
        (limit,) = ledger.own_limits(policy)
        spent = epsilon_spent(ledger.charges(), limit)
    (own,) = letter(tmp_path).local_limits
    assert "this hospital's own limit for every patient is ε 60 at δ 1e-06" in own
    assert f"of which {number(spent)} is used" in own


def test_questions_evaluations_and_lost_rounds_are_named_apart(tmp_path: Path) -> None:
    with HospitalLedger.open(ledger_path(tmp_path, "icu")) as ledger:
        ledger.open_study("sepsis", {"coordinator_key": "x"})
        ledger.accept_loss("sepsis", 2, [Charge("instance", 4.0, 1.0, 2)])
        for round_number, bears in ((3, "all"), (4, "evaluated"), (6, "monitored")):
            price = Charge("instance", 4.0, 1.0, 1, bears=bears, asks=True)  # type: ignore[arg-type]
            ledger.charge("sepsis", round_number, price, (), "ab" * 32)
        ledger.charge("sepsis", 5, Charge("instance", 4.0, 1.0, 1, bears="trained"), (), "ab" * 32)
    (one,) = letter(tmp_path).studies
    kinds = {each.number: each.kind for each in one.rounds}
    assert kinds == {3: "question", 4: "evaluation", 5: "training", 6: "evaluation"}
    assert (one.lost, one.bounds) == (2, ())
    assert "no bound is known here. Write this letter again with the study's certificate" in (
        letter(tmp_path).document().to_markdown()
    )


def test_a_loss_that_was_accepted_after_the_objection_is_in_it(tmp_path: Path) -> None:
    """The new ledger counts its entries anew, so that the number at the objection says nothing of it."""
    with HospitalLedger.open(ledger_path(tmp_path, "icu")) as ledger:
        ledger.declare_slot("sepsis", 60.0)
        ledger.open_study("sepsis", {"coordinator_key": "x"})
        ledger.accept_loss("sepsis", 7, [Charge("instance", 4.0, 1.0, 14)])
        ledger.charge("sepsis", 8, Charge("instance", 4.0, 1.0, 2), (), "ab" * 32)
    (one,) = letter(tmp_path, ledgers={"icu": 2}).studies
    assert (one.lost, one.rounds) == (7, ())


@pytest.mark.parametrize("level", ["instance", "client"])
def test_runs_of_flower_have_the_bound_that_was_counted_here(tmp_path: Path, level: Any) -> None:
    """Against a closed form: three Gaussian steps, with ε of Rényi order λ and the δ of the policy."""
    (tmp_path / "policy.toml").write_text(f"[limits.{level}]\nepsilon = 4.0\ndelta = 1e-5\norder = 6.0\n")
    with HospitalLedger.open(ledger_path(tmp_path, "icu")) as ledger:
        ledger.open_study("flower:7", {"framework": "flower", "run": "7"})
        for number in (1, 2, 3):
            ledger.charge("flower:7", number, Charge(level, 4.0, 1.0, 1), (), "ab" * 32)
    (one,) = letter(tmp_path).studies
    (bound,) = one.bounds
    # (Canonne, Kamath & Steinke 2020, proposition 12.)
    once = 3 * 7 / 2 / 16 + math.log1p(-1 / 7) - (math.log(1e-5) + math.log(7)) / 6
    once = min(once, 3 * 7 / 2 / 16 + math.log(1e5) / 6)
    assert bound.epsilon is not None
    assert once * 0.98 <= bound.epsilon / (1 if level == "instance" else 2) <= once * 1.2
    assert bound.delta == (1e-5 if level == "instance" else pytest.approx((1 + math.exp(bound.epsilon / 2)) * 1e-5))
    assert "counted here" in letter(tmp_path).document().to_markdown()


def test_a_certificate_that_is_another_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = taken_part(tmp_path)
    with pytest.raises(LedgerNotExtended, match="not signed with the key"):
        letter(tmp_path, certificate(other, monkeypatch, Ed25519PrivateKey.generate()))
    short = certificate(other, monkeypatch)
    value = short.raw["certificate"] | {"round": 2}
    with pytest.raises(ConfigurationError, match="ends with round 2, and the patient may have been in round 3"):
        letter(tmp_path, certificates.sealed(value))
    elsewhere = certificates.sealed(short.raw["certificate"] | {"study": "stroke"})
    with pytest.raises(ConfigurationError, match="certificate of stroke: this hospital has no ledger of that study"):
        letter(tmp_path, elsewhere)


@pytest.mark.parametrize(("identity", "holds"), [("p7", True), ("P007", False), ("P7", True), ("q1", False)])
def test_whether_records_hold_the_patient(identity: str, holds: bool) -> None:
    words = presence_in(records(), identity, "icu.csv")
    assert ("hold this patient" in words) == holds
    assert ("hold no patient with this identifier" in words) != holds
    assert identity not in words
    nameless = Table.of({"age": [1.0, 2.0]})
    with pytest.raises(ConfigurationError, match="name no patients"):
        presence_in(nameless, identity, "icu.csv")
