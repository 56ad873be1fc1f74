"""Keys as people make them on the coordinator's machine (`wardround.cli.coordinator.keys`), and a lead from afar."""

from __future__ import annotations

import json
import logging
import os
import re
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from client_sdk.guard.people import SystemAccount
from server.config import load
from server.coordinator import open_coordinator
from server.services.people.audit import read_log
from server.services.people.keys import authenticate
from study_protocol.study.roles import Grant
from tests.factories.live_coordinator import Live
from wardround.cli.main import build

KEY = re.compile(r"^wrk_[0-9a-f]+_[0-9a-f]+$")


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    for name in [name for name in os.environ if name.startswith("WARDROUND_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("WARDROUND_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(logging.getLogger(), "handlers", list(logging.getLogger().handlers))
    assert _run("migrate")[0] == 0
    return dict(os.environ)


def _run(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(build(), words)
    return result.exit_code, result.stdout, result.stderr


def test_keys_are_made_listed_rotated_and_revoked(environment: dict[str, str]) -> None:
    first = _run("key", "create", "--name", "Ada", "--role", "lead", "--study", "icu")[1].strip()
    assert KEY.match(first)
    id = first.split("_")[1]
    second = _run("key", "rotate", id)[1].strip()
    coordinator = open_coordinator(load(environment))
    for key in (first, second):
        person = authenticate(coordinator, key)
        assert (person.name, person.grants) == ("Ada", (Grant("lead", "icu"),))
    assert _run("key", "revoke", id)[0] == 0
    listed = _run("key", "list")[1]
    assert listed.count("Ada") == 2
    assert listed.count("revoked") == 1
    assert first.split("_")[2] not in listed
    assert _run("key", "rotate", id)[0] == 1
    assert authenticate(coordinator, second).name == "Ada"
    # Each change on this machine is in the log, with the operating system's user.
    page = read_log(coordinator, None, 0, 10)
    assert [entry.event.action for entry in page.entries] == ["create_key", "create_key", "revoke_key"]
    assert {entry.event.actor.kind for entry in page.entries} == {"machine"}
    assert all(entry.event.actor.name for entry in page.entries)
    coordinator.database.dispose()


def test_no_variable_names_another_user(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME", "SUDO_USER"):
        monkeypatch.setenv(name, "eve")
    assert _run("key", "create", "--name", "Ada")[0] == 0
    coordinator = open_coordinator(load(environment))
    (entry,) = read_log(coordinator, None, 0, 10).entries
    assert entry.event.actor.name == str(SystemAccount.current()) != "eve"
    coordinator.database.dispose()


def test_a_key_can_go_to_a_file_that_only_its_owner_reads(environment: dict[str, str], tmp_path: Path) -> None:
    target = tmp_path / "key"
    code, shown, _ = _run("key", "create", "--name", "Ada", "--role", "viewer", "--out", str(target))
    assert code == 0
    assert KEY.match(target.read_text().strip())
    assert target.read_text().strip() not in shown
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert _run("key", "create", "--name", "Ada", "--out", str(target))[0] == 1
    # A file that is there already is refused before a key is made.
    assert len(json.loads(_run("key", "list", "--json")[1])["keys"]) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--name", " "), "name: "),
        (("--name", "A\x1b[2J"), "name: "),
        (("--name", "Ada", "--study", "icu"), "an administrator has no study"),
        (("--name", "Ada", "--study", "ICU 1", "--role", "lead"), "lower-case letters"),
        (("--name", "Ada", "--days", "0"), "days"),
        (("--name", "Ada", "--role", "operator"), "role"),
        (("--name", "Ada", "--key-file", "mine.key"), "--server"),
    ],
    ids=["blank", "control", "administrator-of-one", "study", "days", "role", "key-without-address"],
)
def test_what_is_no_key_is_refused_in_words(environment: dict[str, str], words: tuple[str, ...], said: str) -> None:
    code, out, complaint = _run("key", "create", *words)
    assert code != 0
    assert said in complaint
    assert "\x1b" not in complaint
    assert not KEY.match(out.strip())
    assert json.loads(_run("key", "list", "--json")[1])["keys"] == []


def test_a_lead_makes_keys_over_the_api(here: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARDROUND_API_KEY", here.operator_key)
    server = ("--server", here.url)
    lead = tmp_path / "lead.key"
    made = _run("key", "create", "--name", "Ada", "--role", "lead", "--study", "icu", "--out", str(lead), *server)
    assert made[0] == 0, made
    monkeypatch.delenv("WARDROUND_API_KEY")
    mine = (*server, "--key-file", str(lead))
    asker = _run("key", "create", "--name", "Grace", "--role", "asker", "--study", "icu", *mine)[1].strip()
    assert KEY.match(asker)
    refused = _run("key", "create", "--name", "Grace", "--role", "asker", *mine)
    assert refused[0] != 0
    assert "a lead gives roles in its own study" in refused[2]
    listed = json.loads(_run("key", "list", "--json", *mine)[1])["keys"]
    assert {(key["name"], key["role"], key["study"]) for key in listed} == {
        ("Ada", "lead", "icu"),
        ("Grace", "asker", "icu"),
    }
    assert _run("key", "revoke", asker.split("_")[1], *mine)[0] == 0
