"""Every command against the real coordinator: what it prints, its JSON, its exit code."""

import json
import math
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from accounting.budget.ledger import Entry, verify_chain
from client_sdk.cli import register
from client_sdk.commands.shared import number
from tests.factories.hospitals import records
from tests.factories.live_coordinator import Live, live
from tests.factories.settings import settings

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def app() -> typer.Typer:
    made = typer.Typer()
    register(made)
    return made


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Live]:
    with live(tmp_path / "coordinator") as running:
        monkeypatch.setenv("WARDROUND_SERVER", running.url)
        monkeypatch.setenv("WARDROUND_CLIENT_HOME", str(tmp_path / "mercy"))
        (tmp_path / "operator.key").write_text(running.operator_key + "\n")
        yield running


@pytest.fixture
def run(app: typer.Typer, tmp_path: Path) -> Run:
    def call(*arguments: str, code: int = 0, operator: bool = False, **options: Any) -> Result:
        key = ["--key-file", str(tmp_path / "operator.key")] if operator else []
        result = CliRunner().invoke(app, [*arguments, *key], **options)
        assert result.exit_code == code, result.output
        return result

    return call


def write_settings(path: Path, **study: Any) -> Path:
    path.write_text(json.dumps(settings(bayesian=True, max_steps=2, **study).as_json()))
    return path


def write_records(path: Path) -> Path:
    table = records()
    rows = zip(*(table.columns[name].tolist() for name in ("age", "rate", "ill")), table.patients, strict=True)
    path.write_text("\n".join(["age,rate,ill,patient", *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def opened(run: Run, tmp_path: Path) -> None:
    """A study in its enrolling state with one hospital."""
    run("study", "create", "sepsis", "--settings", str(write_settings(tmp_path / "study.json")), operator=True)
    token = run("invite", "sepsis", "mercy", operator=True).stdout.strip()
    assert run("enrol", "-", input=f"{token}\n").stdout == "enrolled: sepsis as mercy\n"


def finished(run: Run, here: Live, tmp_path: Path) -> dict[str, Any]:
    """The same study after its hospital has taken part to the end."""
    opened(run, tmp_path)
    (tmp_path / "mercy" / "policy.toml").write_text("plain_disclosure = true\n")
    run("study", "start", "sepsis", operator=True)
    ended = threading.Event()

    def work() -> None:
        while not ended.wait(0.05):
            here.work()

    worker = threading.Thread(target=work)
    worker.start()
    try:
        data = str(write_records(tmp_path / "records.csv"))
        joined = run("join", "sepsis", "--data", data, "--patient-column", "patient", "--json")
    finally:
        ended.set()
        worker.join()
    return json.loads(joined.stdout)


def test_a_study_from_its_creation_to_its_verified_ledger(here: Live, run: Run, tmp_path: Path) -> None:
    outcome = finished(run, here, tmp_path)
    assert (outcome["reason"], outcome["rounds_sent"], outcome["rounds_refused"]) == ("max-steps-reached", 2, 0)

    budget = json.loads(run("budget", "sepsis", "--json").stdout)
    assert budget == here.operator("GET", "/v1/studies/sepsis/budget").json()
    shown = run("budget", "sepsis").stdout
    assert "ended: max-steps-reached" in shown
    assert "does not hold against whoever sees" in shown
    assert "unbounded" in shown

    verified = json.loads(run("ledger", "verify", "sepsis", "--json").stdout)
    assert verified["entries"] == 6
    assert all(row["shown"] == row["recomputed"] for row in verified["limits"])

    run("ledger", "export", "sepsis", "--out", str(tmp_path / "ledger.jsonl"), operator=True)
    lines = (tmp_path / "ledger.jsonl").read_text().splitlines()
    assert verify_chain([Entry.from_dict(json.loads(line)) for line in lines]) == (6, verified["head"])

    left = json.loads(run("egress-log", "--json").stdout)
    assert [(d["round"], d["what"], d["answer"]) for d in left] == [
        (1, "update", "accepted"),
        (2, "update", "accepted"),
    ]
    assert "accepted" in run("egress-log").stdout


def test_a_studys_states_and_what_is_shown_of_it(here: Live, run: Run, tmp_path: Path) -> None:
    opened(run, tmp_path)
    states = [
        json.loads(run("study", a, "sepsis", "--json", operator=True).stdout)["state"] for a in ("start", "pause")
    ]
    states += [
        json.loads(run("study", a, "sepsis", "--json", operator=True).stdout)["state"] for a in ("resume", "stop")
    ]
    assert states == ["running", "paused", "running", "finished"]
    assert "finished (stopped)" in run("study", "show", "sepsis").stdout
    # Creating the same study again is the same study; its model is not uploaded twice.
    create = ("study", "create", "sepsis", "--settings", str(tmp_path / "study.json"), "--json")
    assert json.loads(run(*create, operator=True).stdout)["state"] == "finished"


def test_a_hospital_withdraws(here: Live, run: Run, tmp_path: Path) -> None:
    opened(run, tmp_path)
    assert run("withdraw", "sepsis").stdout == "withdrawn from sepsis\n"
    members = here.operator("GET", "/v1/studies/sepsis/roster").json()["members"]
    assert [(member["client"], member["state"]) for member in members] == [("mercy", "withdrawn")]


def test_the_roster_is_pinned_only_under_the_fingerprint_that_was_compared(
    here: Live, run: Run, tmp_path: Path
) -> None:
    opened(run, tmp_path)
    roster = json.loads(run("roster", "show", "sepsis", "--json").stdout)
    assert roster["fingerprint"] in run("roster", "show", "sepsis").stdout
    run("roster", "pin", "sepsis", "0" * 64, code=4)
    assert run("roster", "pin", "sepsis", roster["fingerprint"]).stdout == "pinned: mercy\n"
    assert '"pinned"' in (tmp_path / "mercy" / "studies" / "sepsis.json").read_text()


def test_a_ledger_that_does_not_give_what_is_shown_is_not_believed(
    here: Live, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from client_sdk.api.client import Client

    finished(run, here, tmp_path)
    real = Client.budget

    def flattered(self: Client, name: str) -> Any:
        statement = real(self, name)
        first = statement.limits[0].model_copy(update={"spent": statement.limits[0].spent / 2})
        return statement.model_copy(update={"limits": [first, *statement.limits[1:]]})

    monkeypatch.setattr(Client, "budget", flattered)
    assert "not the one that the ledger gives" in run("ledger", "verify", "sepsis", code=4).stderr


def test_errors_are_one_line_and_an_exit_code(here: Live, run: Run, tmp_path: Path) -> None:
    cases = [
        (("budget", "sepsis"), 1, "enrol first"),
        (("enrol", "wri_half"), 1, "copy all of it"),
        (("study", "show", "flu", "--key-file", str(tmp_path / "operator.key")), 1, "unknown-study"),
        (("study", "start", "flu"), 1, "operator key"),
        (("egress-log",), 1, "no ledger"),
        (("study", "create", "flu", "--settings", str(tmp_path / "none.json")), 1, "none.json"),
        (("budget",), 2, "Missing argument"),
        (("study", "show", "Sepsis"), 2, "lower-case letters"),
        (("invite", "sepsis", "City Hospital"), 2, "lower-case letters"),
        (
            ("budget", "sepsis", "--server", "https://127.0.0.1:9", "--key-file", str(tmp_path / "none")),
            1,
            "cannot be read",
        ),
    ]
    for arguments, code, text in cases:
        result = run(*arguments, code=code)
        assert text in result.stderr, arguments
        assert "Traceback" not in result.output


def test_a_settings_file_with_mistakes_names_each_of_them(here: Live, run: Run, tmp_path: Path) -> None:
    broken = settings().as_json()
    broken["privacy"].pop("noise_multiplier")
    broken["privacy"]["clip_norm"] = -1
    path = tmp_path / "study.json"
    path.write_text(json.dumps(broken))
    said = run("study", "create", "sepsis", "--settings", str(path), code=1, operator=True).stderr
    assert "privacy.noise_multiplier: Field required" in said
    assert "privacy.clip_norm" in said
    assert here.operator("GET", "/v1/studies/sepsis").status_code == 404


def test_a_wrong_task_is_one_line_too(here: Live, run: Run, tmp_path: Path) -> None:
    wrong = settings(training={"task_parameters": {"label": "ill", "colunm.age": "0..100"}}).as_json()
    path = tmp_path / "study.json"
    path.write_text(json.dumps(wrong))
    said = run("study", "create", "sepsis", "--settings", str(path), code=1, operator=True).stderr
    assert "colunm" in said
    assert "Traceback" not in said


def test_doctor_finds_the_live_coordinator(here: Live, run: Run, tmp_path: Path) -> None:
    assert "identity.key" in run("doctor", code=1).stdout
    opened(run, tmp_path)
    findings = {f["check"]: f["verdict"] for f in json.loads(run("doctor", "--json").stdout)}
    assert findings["coordinator"] == "good"
    assert findings["clock"] == "good"


def test_what_became_of_a_study(here: Live, run: Run, tmp_path: Path) -> None:
    finished(run, here, tmp_path)
    (listed,) = json.loads(run("study", "list", "--json", operator=True).stdout)
    assert (listed["study"], listed["state"], listed["rounds"]) == ("sepsis", "finished", 2)
    assert "max-steps-reached" in run("study", "list", operator=True).stdout

    shown = json.loads(run("study", "rounds", "sepsis", "--json").stdout)
    assert [one["round"] for one in shown] == [1, 2]
    budget = here.operator("GET", "/v1/studies/sepsis/budget").json()
    spent = [limit["spent"] for limit in budget["limits"] if limit["epsilon"] is not None]
    assert [limit["spent"] for limit in shown[-1]["spent"]] == spent
    assert len(json.loads(run("study", "rounds", "sepsis", "--last", "1", "--json").stdout)) == 1
    assert number(spent[0]) in run("study", "rounds", "sepsis", operator=True).stdout

    target = tmp_path / "model.safetensors"
    run("study", "model", "sepsis", "-o", str(target))
    assert target.read_bytes() == here.operator("GET", "/v1/studies/sepsis/models/2").content
    run("study", "model", "sepsis", "-o", str(target), "--round", "1", code=1)
    run("study", "model", "sepsis", "-o", str(tmp_path / "other"), "--round", "9", code=1)
    assert not (tmp_path / "other").exists()


def test_charges_without_a_limit_of_ones_own_are_told(here: Live, run: Run, tmp_path: Path) -> None:
    finished(run, here, tmp_path)
    assert "2 charges, and no limit of your own" in run("own-budget").stdout


def test_who_kept_a_round_from_going_on_is_told_to_operators(here: Live, run: Run, tmp_path: Path) -> None:
    opened(run, tmp_path)
    run("study", "start", "sepsis", operator=True)
    here.work()
    assert "mercy: sampled" in run("study", "rounds", "sepsis", operator=True).stdout
    run("revoke", "sepsis", "mercy", operator=True)
    members = here.operator("GET", "/v1/studies/sepsis/roster").json()["members"]
    assert [(member["client"], member["state"]) for member in members] == [("mercy", "revoked")]


@pytest.mark.parametrize(("value", "shown"), [(2.0001, "2.001"), (2.0, "2.000"), (0.1, "0.100"), (2.9515, "2.952")])
def test_a_loss_is_never_printed_smaller_than_it_is(value: float, shown: str) -> None:
    assert number(value) == shown
    assert number(0.2539, left=True) == "0.253"


@pytest.mark.parametrize(("value", "shown"), [(None, "unbounded"), (math.inf, "unbounded"), (math.nan, "unknown")])
def test_a_loss_that_is_no_number_is_named(value: float | None, shown: str) -> None:
    assert number(value) == shown
