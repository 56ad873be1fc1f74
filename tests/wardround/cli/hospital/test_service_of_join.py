"""A service needs exactly the files that `join` would read and write, whatever folder it was written from."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from client_sdk.errors import ConfigurationError
from tests.factories.services import enrolled_home
from tests.factories.snapshots import frozen, recorded
from wardround.cli.hospital.service_of_join import service_of_join
from wardround.cli.hospital.service_units import Service


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "WARDROUND_CA_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WARDROUND_CLIENT_HOME", "mercy")
    return enrolled_home(tmp_path)


def service(*options: str) -> Service:
    return service_of_join("sepsis", options, of_user=True, image="image", environment_file=None)


def test_relative_paths_and_the_directory_of_the_environment_become_whole(tmp_path: Path, home: Path) -> None:
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "policy.toml").write_text("")
    chosen = service("--data", "records.csv", "--policy", "rules/policy.toml", "--events", "events.jsonl")
    assert (chosen.study, chosen.client, chosen.home) == ("sepsis", "mercy", home)
    assert chosen.words[-2:] == ("--home", str(home))
    assert str(tmp_path / "rules" / "policy.toml") in chosen.words
    # With what lies beside the policy, such as a list of patients who objected.
    assert chosen.read == (tmp_path / "records.csv", tmp_path / "rules")
    assert chosen.written == (tmp_path,)


def test_the_name_of_a_snapshot_stays_a_name_and_its_file_is_read(tmp_path: Path, home: Path) -> None:
    snapshot = recorded(home, frozen(tmp_path, "icu-1", b"first"))
    chosen = service("--data", "icu-1")
    assert chosen.words[:4] == ("join", "sepsis", "--data", "icu-1")
    assert chosen.read == (snapshot.path,)


def test_variables_are_copied_and_no_key(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ca.pem").write_text("")
    monkeypatch.setenv("WARDROUND_CA_FILE", "ca.pem")
    monkeypatch.setenv("NO_PROXY", "localhost")
    monkeypatch.setenv("WARDROUND_API_KEY", "wrk_a_secret")
    chosen = service("--data", "records.csv")
    assert chosen.environment == {"WARDROUND_CA_FILE": str(tmp_path / "ca.pem"), "NO_PROXY": "localhost"}
    assert tmp_path / "ca.pem" in chosen.read


@pytest.mark.parametrize("address", ["http://user:hunter2@proxy:3128", "user@proxy:3128", "https://:hunter2@proxy"])
def test_a_proxy_with_a_name_or_password_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("https_proxy", address)
    with pytest.raises(ConfigurationError, match="--environment-file") as refused:
        service("--data", "records.csv")
    assert "hunter2" not in str(refused.value)


def test_an_account_without_a_name_is_its_number(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_: int) -> None:
        raise KeyError

    monkeypatch.setattr("pwd.getpwuid", unknown)
    owner = os.stat(home)
    assert service("--data", "records.csv").account == (str(owner.st_uid), owner.st_uid, owner.st_gid)


def test_a_service_is_no_person(home: Path) -> None:
    with pytest.raises(ConfigurationError, match="--as is no option of a service"):
        service("--data", "records.csv", "--as", "Ada")
