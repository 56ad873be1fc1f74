"""`wardround witness`: signed heads between two hospitals, without a network."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from accounting.budget.ledger import Entry
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from client_sdk.guard.seen_ledger import LedgerStep, SeenHead
from client_sdk.identity import Identity, Membership
from study_protocol.study.messages import RosterEntry
from study_protocol.study.plan_of import plan_of
from study_protocol.wire.signing import LEDGER_HEAD, encode_public_key, sign_document
from tests.factories.commands import Run
from tests.factories.ledgers import after, opened
from tests.factories.settings import settings

COORDINATOR = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))


def chain(rounds: int, **options: float) -> list[Entry]:
    chosen = settings(max_steps=9, **options)
    entries = opened(plan_of(chosen), chosen.as_json(), "sepsis")
    for number in range(1, rounds + 1):
        entries.append(after(entries, "reserved", number))
    return entries


def hospital(folder: Path, name: str, entries: list[Entry], **pinned: Path) -> Path:
    """A directory of a hospital that saw these entries. pinned: the other hospitals' directories by name."""
    home = folder / name
    identity = Identity.create(home)
    key = encode_public_key(COORDINATOR.public_key())
    others = tuple(
        RosterEntry(client=other, public_key=Identity.open(path).public_key, state="active")
        for other, path in pinned.items()
    )
    url = "https://x.example"
    identity.remember(
        Membership(study="sepsis", client=name, url=url, origin=url, coordinator_key=key, pinned=others or None)
    )
    document = {"study": "sepsis", "entries": len(entries), "sha256": entries[-1].sha256}
    signature = sign_document(COORDINATOR, LEDGER_HEAD, document)
    signed = {"label": LEDGER_HEAD, "document": document, "signature": signature}
    with HospitalLedger.open(ledger_path(home, "records")) as ledger:
        head = SeenHead(len(entries), entries[-1].sha256, len(entries) - 1)
        ledger.seen_ledger("sepsis").extend(LedgerStep(entries, head, signed, {}, ()))
    return home


def test_the_first_call_makes_a_key_and_later_ones_print_it(run: Run, tmp_path: Path) -> None:
    home = tmp_path / "auditor"
    first = run("witness", "key", "--home", str(home)).stdout.strip()
    assert first == Identity.open(home).public_key
    assert run("witness", "key", "--home", str(home)).stdout.strip() == first


@pytest.mark.parametrize(
    ("rounds", "words"), [(2, "is the same for grace and here"), (4, "2 entries more than are seen")]
)
def test_a_head_of_the_same_ledger_is_the_same_or_ahead(run: Run, tmp_path: Path, rounds: int, words: str) -> None:
    grace = hospital(tmp_path, "grace", chain(rounds))
    mercy = hospital(tmp_path, "mercy", chain(2), grace=grace)
    path = tmp_path / "head.json"
    run("witness", "export", "sepsis", "-o", str(path), "--home", str(grace))
    assert words in run("witness", "compare", str(path), "--home", str(mercy)).stdout
    with HospitalLedger.open(ledger_path(mercy, "records"), read_only=True) as ledger:
        ahead = ledger.seen_ledger("sepsis").heads_ahead()
    assert [head.head.entries for head in ahead] == ([5] if rounds == 4 else [])
    assert json.loads(run("witness", "export", "sepsis", "--home", str(grace)).stdout) == json.loads(path.read_text())


def test_two_ledgers_end_with_4_and_the_proof_is_kept(run: Run, tmp_path: Path) -> None:
    grace = hospital(tmp_path, "grace", chain(2, noise_multiplier=2.0))
    mercy = hospital(tmp_path, "mercy", chain(2), grace=grace)
    path = tmp_path / "head.json"
    run("witness", "export", "sepsis", "-o", str(path), "--home", str(grace))
    said = run("witness", "compare", str(path), "--home", str(mercy), code=4).stderr
    assert "the coordinator shows two ledgers" in said
    (kept,) = (mercy / "evidence").iterdir()
    assert "grace" in kept.read_text()


def test_a_file_that_is_no_head_and_a_hospital_that_saw_nothing_are_named(run: Run, tmp_path: Path) -> None:
    mercy = hospital(tmp_path, "mercy", chain(2))
    (tmp_path / "a.json").write_text("{}")
    said = run("witness", "compare", str(tmp_path / "a.json"), "--home", str(mercy), code=1).stderr
    assert "it is no exported head" in said
    said = run("witness", "export", "sepsis", "--home", str(mercy), "--dataset", "icu", code=1).stderr
    assert "there is no ledger" in said
