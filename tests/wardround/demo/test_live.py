"""Live coordinators and hospitals: their environment, arguments and policies."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from client_sdk.guard.policy import SitePolicy
from client_sdk.guard.rules import require_allowed
from client_sdk.study import pinning
from tests.factories.settings import limit, settings
from wardround.demo import live
from wardround.demo.live import (
    LiveCoordinator,
    LiveHospital,
    RostersDiffer,
    compare_and_pin,
    postgres_folder,
    site_policy,
)


class Started:
    """Takes the place of `Processes`: what was started, with its environment."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[str], dict[str, str]]] = []

    def start(self, name: str, arguments: Any, *, env: Any, log: Path) -> Any:
        self.calls.append((name, list(arguments), dict(env)))
        return SimpleNamespace(log=log)

    def run(self, name: str, arguments: Any, *, env: Any, log: Path, command: Any) -> None:
        self.calls.append((name, [*command, *arguments], dict(env)))


@pytest.fixture
def started() -> Started:
    return Started()


def test_a_coordinator_is_known_by_its_public_origin_where_it_has_one(tmp_path: Path, started: Any) -> None:
    here = LiveCoordinator(tmp_path, started, port=21_000)
    assert here.address == here.origin == "http://127.0.0.1:21000"
    behind = LiveCoordinator(tmp_path, started, port=21_000, public_origin="https://study.example", database_url="db")
    env = behind.environment(log_level="debug")
    assert (env["WARDROUND_ORIGIN"], env["WARDROUND_PORT"]) == ("https://study.example", "21000")
    assert (env["WARDROUND_DATABASE_URL"], env["WARDROUND_LOG_LEVEL"]) == ("db", "debug")
    assert "WARDROUND_DATABASE_URL" not in here.environment()


def test_it_is_prepared_with_tables_and_two_keys(tmp_path: Path, started: Any) -> None:
    LiveCoordinator(tmp_path / "home", started, command=("old-wardround",)).prepare()
    commands = [" ".join(arguments[1:4]) for _, arguments, _ in started.calls]
    assert commands[0] == "migrate"
    assert sorted(commands[1:]) == ["key create --role", "key create --role"]
    assert {arguments[0] for _, arguments, _ in started.calls} == {"old-wardround"}


@pytest.mark.parametrize(
    ("name", "column", "options"),
    [
        ("a.csv", "patient", ["--patient-column", "patient", "--separator", "comma", "--decimal", "point"]),
        ("a.npz", None, []),
    ],
)
def test_a_hospital_joins_with_the_options_of_its_file(
    tmp_path: Path, started: Any, name: str, column: str | None, options: list[str]
) -> None:
    place = LiveHospital("city", tmp_path, Path(name), column, started, variables={"LANG": "C"})
    place.join("demo", "http://x", slot=None)
    ((_, arguments, env),) = started.calls
    assert arguments[1:] == ["join", "demo", "--data", name, *options]
    assert (env["WARDROUND_SERVER"], env["WARDROUND_CLIENT_HOME"]) == ("http://x", str(tmp_path))
    assert os.environ.get("PATH") == env.get("PATH")


def test_a_hospital_enrols_under_its_policy(tmp_path: Path, started: Any) -> None:
    LiveHospital("city", tmp_path / "city", Path("a.csv"), None, started).enrol(
        "http://x", "token", "studies = ['s']\n"
    )
    assert (tmp_path / "city" / "policy.toml").read_text() == "studies = ['s']\n"
    assert started.calls[0][1][1:] == ["enrol", "token"]


CLIENT = [limit("client", epsilon=10.0)]


@pytest.mark.parametrize(
    "study",
    [
        settings(limits=[limit("instance", epsilon=3.0)]),
        settings(bayesian=True, limits=[limit("instance", epsilon=3.0), limit("instance", "bayesian", epsilon=2.0)]),
        settings("client", limits=CLIENT),
    ],
    ids=["classical", "shown log-moments", "without noise"],
)
def test_a_policy_allows_its_own_study_and_no_more(study: Any, tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(site_policy("demo", study))
    policy = SitePolicy.read(path)
    require_allowed(policy, "demo", "records", study, roster_pinned=True)
    with pytest.raises(Exception, match="studies does not list this study"):
        require_allowed(policy, "other", "records", study, roster_pinned=True)
    written = tomllib.loads(site_policy("demo", study))
    assert written["least_noise_multiplier"] == study.privacy.noise_multiplier
    assert written["plain_disclosure"] == (study.privacy.bayesian is not None)
    assert written["unnoised_updates"] == study.privacy.rules.central


def test_hospitals_pin_a_roster_only_if_all_read_the_same_number(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned: list[tuple[Any, str]] = []
    monkeypatch.setattr(live, "pin_roster", lambda hospital, study, number: pinned.append((hospital, number)))
    monkeypatch.setattr(live, "roster_number", lambda study, hospital: "12345" if hospital != "mole" else "54321")
    places: Any = ["city", "rural"]
    assert compare_and_pin("demo", places) == "12345"
    assert pinned == [("city", "12345"), ("rural", "12345")]
    with pytest.raises(RostersDiffer, match="2 different rosters are shown to 3 hospitals"):
        compare_and_pin("demo", [*places, "mole"])
    assert len(pinned) == 2
    assert pinning.as_digits("0" * 64).split()[0] == "00000"


def test_an_embedded_database_lies_beside_its_socket() -> None:
    assert postgres_folder("postgresql+psycopg://postgres@/postgres?host=%2Ftmp%2Fwrpg-1%2Fd") == Path("/tmp/wrpg-1/d")
