"""`wardround audit-log`: what a person reads, what a program reads, and what was changed in the database."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import text

from server.services.people.keys import create_key
from study_protocol.study.audit_log import AuditEntry, verify_entries
from study_protocol.study.people import ApiKeyCreate
from study_protocol.study.roles import Role
from study_protocol.wire.signing import encode_public_key
from tests.factories.commands import Run
from tests.factories.live_coordinator import Live

_IN = "WHERE study = 'sepsis' AND sequence"


@pytest.fixture
def study(here: Live) -> str:
    here.open_study("sepsis")
    here.invite("sepsis", "mercy")
    return "sepsis"


def without_guard(here: Live, *statements: str) -> None:
    """As the owner of the database's file could."""

    def work(tx: Any) -> None:
        for action in ("update", "delete"):
            tx.session.execute(text(f"DROP TRIGGER IF EXISTS audit_log_no_{action}"))
        for statement in statements:
            tx.session.execute(text(statement))

    here.coordinator.database.write("tamper", work)


def test_a_study_s_log_is_shown_with_its_actors(run: Run, study: str, here: Live) -> None:
    result = run("audit-log", study, operator=True)
    assert "Ada (key" in result.stdout
    assert "administrator)" in result.stdout
    for action in ("create_study", "put_initial_model", "invite"):
        assert action in result.stdout
    assert "entries: 3. The chain is good" in result.stdout
    key = here.coordinator.signer.public_key
    assert "entries: 3. The chain is good" in run("audit-log", study, "--coordinator-key", key, operator=True).stdout


def test_another_coordinator_s_key_is_no_good_sign(run: Run, study: str) -> None:
    other = encode_public_key(Ed25519PrivateKey.generate().public_key())
    result = run("audit-log", study, "--coordinator-key", other, operator=True, code=4)
    assert "the coordinator's key is not the one that you named" in result.stderr
    assert "chain is good" not in result.stdout


def test_json_lines_are_the_chain(run: Run, study: str) -> None:
    lines = run("audit-log", study, "--jsonl", operator=True).stdout.splitlines()
    entries = [AuditEntry.model_validate(json.loads(line)) for line in lines]
    assert verify_entries(entries, study)[0] == 3
    # A later export begins with an earlier one, byte by byte.
    run("study", "stop", study, operator=True)
    assert run("audit-log", study, "--jsonl", operator=True).stdout.splitlines()[:3] == lines


def test_the_coordinator_s_log_names_keys_and_studies(run: Run, study: str, tmp_path: Path, here: Live) -> None:
    server = ("--server", here.url)
    made = ("key", "create", "--name", "Grace", "--role", "auditor", "--study", study, "--out", str(tmp_path / "k"))
    run(*made, *server, operator=True)
    shown = run("audit-log", operator=True).stdout
    assert f"auditor of {study} for Grace" in shown
    assert "create_study" in shown
    assert "root (machine)" in shown
    # The auditor of the study reads who was given a key for it.
    seen = run("audit-log", study, "--key-file", str(tmp_path / "k")).stdout
    assert f"auditor of {study} for Grace" in seen
    assert "entries: 4. The chain is good" in seen


CHANGED = {
    "changed": (f"UPDATE audit_log SET event = replace(event, 'Ada', 'Eve') {_IN} = 2", "entry 2"),
    "removed": (f"DELETE FROM audit_log {_IN} = 2", "entry 3: follows entry 1"),
    "cut off": (f"DELETE FROM audit_log {_IN} = 3", "ends with entry 2, and its head names entry 3"),
    "unreadable": (f"UPDATE audit_log SET event = 'x' {_IN} = 2", "entry 2: it cannot be read"),
}


@pytest.mark.parametrize("change", CHANGED)
def test_what_was_changed_is_named_and_ends_with_1(run: Run, study: str, here: Live, change: str) -> None:
    statement, said = CHANGED[change]
    without_guard(here, statement)
    for more in ((), ("--jsonl",)):
        result = run("audit-log", study, *more, operator=True, code=1)
        assert said in result.stderr
        assert "chain is good" not in result.stdout


def test_a_log_set_back_with_its_head_is_found_by_the_ledger(run: Run, study: str, here: Live) -> None:
    heads = "SELECT entries, sha256, signature FROM audit_heads WHERE study = 'sepsis'"
    before = here.coordinator.database.read("head", lambda tx: tx.session.execute(text(heads)).one())
    here.invite("sepsis", "grace")
    earlier = f"entries = {before[0]}, sha256 = '{before[1]}', signature = '{before[2]}'"
    without_guard(
        here,
        f"DELETE FROM audit_log {_IN} > {before[0]}",
        f"UPDATE audit_heads SET {earlier} WHERE study = 'sepsis'",
    )
    result = run("audit-log", study, operator=True, code=1)
    assert "names entry 4 of the log, which is another one or missing" in " ".join(result.stderr.split())


KEYS = {
    "role": "UPDATE api_keys SET role = 'lead' WHERE name = 'Grace'",
    "study": "UPDATE api_keys SET study = NULL WHERE name = 'Grace'",
    "secret": f"UPDATE api_keys SET secret_sha256 = '{'e' * 64}' WHERE name = 'Grace'",
    "expiry": "UPDATE api_keys SET expires_at = NULL WHERE name = 'Grace'",
    "revocation": "UPDATE api_keys SET revoked_at = NULL WHERE name = 'Mary'",
    "added": (
        "INSERT INTO api_keys (id, role, name, secret_sha256, created_at, written_by) SELECT 'ffff', 'administrator', "
        "'Grace', secret_sha256, created_at, written_by FROM api_keys WHERE name = 'Grace'"
    ),
}


@pytest.mark.parametrize("change", KEYS)
def test_a_key_changed_in_the_database_is_found(run: Run, here: Live, change: str) -> None:
    for name in ("Grace", "Mary"):
        body = {"role": "viewer", "study": "sepsis", "name": name}
        id = here.operator("POST", "/v1/api-keys", json=body).json()["id"]
    here.operator("DELETE", f"/v1/api-keys/{id}")
    assert "chain is good" in run("audit-log", operator=True).stdout
    without_guard(here, KEYS[change])
    result = run("audit-log", operator=True, code=1)
    assert "the key" in result.stderr
    assert result.stderr.count("wardround: ") == 1


@pytest.mark.parametrize("role", ["asker", "viewer"])
def test_a_role_without_the_right_is_told_which_one_has_it(
    run: Run, study: str, here: Live, tmp_path: Path, role: Role
) -> None:
    path = tmp_path / "key"
    path.write_text(create_key(here.coordinator, ApiKeyCreate(role=role, name="Grace")).key or "")
    result = run("audit-log", study, "--key-file", str(path), code=1)
    needed = "this needs the role administrator, lead or auditor of this study, and you are"
    assert f"{needed} {role} of all studies" in " ".join(result.stderr.split())
    result = run("audit-log", "--key-file", str(path), code=1)
    assert f"this needs the role administrator, and you are {role}" in " ".join(result.stderr.split())


def test_an_expired_key_and_no_key_are_refused_in_a_sentence(
    run: Run, study: str, here: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WARDROUND_API_KEY", raising=False)
    assert "this needs an API key" in run("audit-log", study, code=1).stderr
    made = create_key(here.coordinator, ApiKeyCreate(role="auditor", name="Grace", expires_in_days=1))
    path = tmp_path / "key"
    path.write_text(made.key or "")
    assert made.expires_at is not None
    past = (made.expires_at - timedelta(days=2)).timestamp()
    without_guard(here, f"UPDATE api_keys SET created_at = {past}, expires_at = {past + 1} WHERE id = '{made.id}'")
    result = run("audit-log", study, "--key-file", str(path), code=1)
    assert "the API key has expired: ask for a new one" in " ".join(result.stderr.split())
    assert (made.key or "") not in result.stderr


def test_an_unknown_study_is_a_sentence(run: Run, here: Live) -> None:
    assert "there is no study of this name" in run("audit-log", "nowhere", operator=True, code=1).stderr
