"""`wardround ask`, `query …` and `budget` as people type them, with hospitals that answer."""

from __future__ import annotations

import csv
import json
import math
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from client_sdk.api.questions import read_question
from client_sdk.guard.approvals import Approvals
from study_protocol.queries.ready import READY
from tests.factories.asking import Site, answering_policy, enrolled
from tests.factories.commands import Run
from tests.factories.live_coordinator import Live
from tests.factories.settings import settings, statistics_settings
from wardround.cli.hospital import agreement

AGES = """\
kind = "table"
title = "Patients by age"
noise_multiplier = 6.0
variables = [{ column = "age", edges = [40, 60] }]
"""
MOMENTS = """\
kind = "moments"
noise_multiplier = 6.0
numbers = [{ column = "age", low = 0.0, high = 100.0 }]
"""


@pytest.fixture
def asked(tmp_path: Path) -> str:
    """A file with a question."""
    (tmp_path / "ages.toml").write_text(AGES)
    return str(tmp_path / "ages.toml")


@pytest.fixture
def registry(here: Live, tmp_path: Path) -> list[Site]:
    """A started study of questions alone, without masks, whose two hospitals have not joined."""
    chosen = statistics_settings(masked=False, epsilon=3.0)
    return enrolled(here, tmp_path / "sites", chosen, names=("alpha", "beta"), policy=answering_policy())


@pytest.fixture
def answering(here: Live, registry: list[Site]) -> Iterator[list[Site]]:
    """The same; its hospitals answer whatever is asked."""
    ended = threading.Event()

    def work() -> None:
        while not ended.wait(0.05):
            here.work()

    worker = threading.Thread(target=work)
    worker.start()
    for site in registry:
        site.start()
    yield registry
    here.operator("POST", "/v1/studies/registry/stop")
    for site in registry:
        site.join(timeout=30)
    ended.set()
    worker.join()


@pytest.mark.slow
def test_a_plan_says_noise_errors_and_every_limit_and_asks_nobody(
    here: Live, registry: Any, run: Run, asked: str
) -> None:
    shown = " ".join(run("ask", "registry", asked, "--plan", operator=True).stdout.split())
    # In the clear each of two hospitals adds the whole: 6·√2, times 1.96 is 16.6.
    for words in (
        "s = 6 is sure, 8.485 if every hospital answers",
        "± 16.6",
        "0.000",
        "3",
        "How many patients there are by",
    ):
        assert words in shown
    assert json.loads(run("query", "list", "registry", "--json", operator=True).stdout) == []
    plan = json.loads(run("ask", "registry", asked, "--plan", "--json", operator=True).stdout)
    assert plan["allowed"] is True
    assert plan["expected"] == []
    few = " ".join(run("ask", "registry", asked, "--plan", "--patients", "40", operator=True).stdout.split())
    for words in ("With 40 patients", "error from sampling", "the noise decides", "Ask for fewer cells"):
        assert words in few
    many = run("ask", "registry", asked, "--plan", "--patients", "40000", operator=True).stdout
    assert "With 40000 patients" in many
    assert "the noise decides" not in many
    plan = json.loads(run("ask", "registry", asked, "--plan", "--patients", "40", "--json", operator=True).stdout)
    assert [one["estimate"] for one in plan["expected"]] == [pytest.approx(40 / 3)]
    refused = run("ask", "registry", asked, "--patients", "40", code=1, operator=True).output
    assert "--patients goes with --plan" in refused


@pytest.mark.usefixtures("registry")
def test_a_file_that_leaves_the_form_open_is_asked_in_the_form_that_needs_the_least_noise(
    here: Live, run: Run, tmp_path: Path
) -> None:
    """The study reads centred questions. One that an earlier version created does not."""
    path = tmp_path / "ages.toml"

    def sensitivity(more: str = "") -> float:
        path.write_text(MOMENTS + more)
        plan = run("ask", "registry", str(path), "--plan", "--json", operator=True).stdout
        return json.loads(plan)["sensitivity"]

    assert [sensitivity(), sensitivity("centred = true\n")] == [1.5, 1.5]
    assert sensitivity("centred = false\n") == pytest.approx(math.sqrt(3))
    with here.coordinator.database.engine.begin() as connection:
        connection.execute(text("UPDATE studies SET protocol = 2"))
    assert sensitivity() == pytest.approx(math.sqrt(3))
    path.write_text(MOMENTS + "centred = true\n")
    refused = run("ask", "registry", str(path), "--plan", code=1, operator=True).output
    assert "ask without it" in " ".join(refused.split())


@pytest.mark.slow
def test_an_answer_is_shown_and_written_as_tables(answering: Any, run: Run, asked: str, tmp_path: Path) -> None:
    csv_file = tmp_path / "answer.csv"
    shown = run("ask", "registry", asked, "--csv", str(csv_file), operator=True).stdout
    for words in (
        "Patients by age",
        "estimate",
        "2 hospitals in the sum",
        "ledger entry",
        "No noise protects",
    ):
        assert words in shown
    assert "was not compared" in shown
    rows = list(csv.reader(csv_file.read_text().splitlines()))
    assert rows[0][:2] == ["age", "estimate"]
    assert [row[0] for row in rows[1:]][-1] == "missing"
    assert (tmp_path / "answer-shares.csv").exists()
    assert (tmp_path / "answer-patients.csv").exists()
    again = run("ask", "registry", asked, "--csv", str(csv_file), code=1, operator=True)
    assert "exists already" in again.output
    only = run("query", "show", "registry", "1", "--table", "shares", operator=True).stdout
    assert "share of the patients" in only
    assert "patients in all" not in only
    assert (
        "table, shares, patients" in run("query", "show", "registry", "1", "--table", "x", code=1, operator=True).output
    )
    assert json.loads(run("query", "show", "registry", "1", "--json", operator=True).stdout)["state"] == "answered"
    key = run("ask", "registry", asked, "--coordinator-key", "0" * 64, code=4, operator=True)
    assert "another key" in key.output
    _budget_names_the_query(run)


def _budget_names_the_query(run: Run) -> None:
    shown = run("budget", "registry", operator=True).stdout
    assert "query 1: Patients by age" in shown
    budget = json.loads(run("budget", "registry", "--json", operator=True).stdout)
    (charge,) = budget["charges"]
    assert (charge["round"], charge["query"], charge["title"]) == (1, 1, "Patients by age")
    assert charge["spent"][0]["spent"] == budget["limits"][0]["spent"] > 0
    certificate = budget["limits"][0]["certificate"]
    # The only question so far: its share of μ², rounded up, in the sentence and in the row of its charge.
    share = f"{math.ceil(1000 * certificate['used'] / certificate['allowed']) / 10:g} %"
    assert shown.count(share) == 2


@pytest.mark.slow
def test_a_hospital_reads_the_words_before_the_numbers_and_is_asked(
    registry: list[Site], run: Run, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "waiting: 0 of at least 2" in run("ask", "registry", asked, "--no-wait", operator=True).stdout
    home = ("--home", str(registry[0].directory))
    shown = run("query", "show", "registry", "1", *home).stdout
    assert shown.index("How many patients there are by age") < shown.index("4 numbers leave this hospital")
    assert shown.count("How many patients there are by age") == 1
    assert "at this hospital: not decided" in shown
    # Of one Gaussian answer at noise multiplier 6 and δ = 1e-5: Balle and Wang 2018, Theorem 8.
    assert "cost for each patient in this study (instance classical): ε 0.000 → 0.595, at most 3" in shown
    assert "--yes" in run("query", "approve", "registry", "1", *home, code=1).output
    monkeypatch.setattr(agreement, "at_a_terminal", lambda: True)
    declined = run("query", "approve", "registry", "1", *home, code=1, input="n\n")
    assert "Answer it?" in declined.output
    assert "no decision was written" in declined.output
    approvals = Approvals(registry[0].directory, "registry")
    digest = read_question(asked).digest()
    assert not approvals.has(digest)
    assert "approved" in run("query", "approve", "registry", "1", *home, input="y\n").stdout
    assert approvals.has(digest)
    assert "at this hospital: approved by" in run("query", "show", "registry", "1", *home).stdout
    denied = run("query", "deny", "registry", "1", *home, "--as", "Ada", "--role", "privacy officer").stdout
    assert "query 1 of registry: declined by Ada (account " in denied
    assert "privacy officer" in denied
    assert approvals.denied(digest)
    assert digest in run("query", "show", "registry", "1", *home).stdout
    run("query", "approve", "registry", "1", "--yes", "--digest", digest, *home)
    assert approvals.has(digest)


@pytest.mark.slow
def test_yes_approves_the_question_that_was_read_and_no_other(registry: list[Site], run: Run, asked: str) -> None:
    run("ask", "registry", asked, "--no-wait", operator=True)
    home = ("--home", str(registry[0].directory))
    approvals = Approvals(registry[0].directory, "registry")
    digest = read_question(asked).digest()
    approving = ("query", "approve", "registry", "1", "--yes", *home)
    # As it was: whatever the coordinator shows at this moment.
    assert "with --digest" in " ".join(run(*approving, code=1).output.split())
    # Two questions with one beginning of 16 digits take 2³² tries to find.
    for wrong in (digest[:16], digest[:-1], digest[:-1] + "g", digest[:-1] + "X", digest + "0", "", " " * 64, "." * 64):
        assert "all 64 digits" in " ".join(run(*approving, "--digest", wrong, code=1).output.split())
    other = digest[:-1] + ("0" if digest[-1] != "0" else "1")
    refused = run(*approving, "--digest", other, code=1).output
    assert "another one than the one that you read" in " ".join(refused.split())
    assert not approvals.has(digest)
    run(*approving, "--digest", digest)
    assert approvals.has(digest)
    (registry[0].directory / "policy.toml").write_text('[statistics]\ndenied_columns = ["age"]\n')
    shown = " ".join(run("query", "show", "registry", "1", *home).stdout.split())
    assert "denied_columns names age. No approval changes that" in shown


DEATH = """\
kind = "glm"
family = "logistic"
steps = 2
noise_multiplier = 4.0
outcome = { column = "ill", categories = ["1"] }
predictors = [{ column = "age", low = 0.0, high = 100.0 }]
"""


@pytest.mark.slow
def test_a_regression_is_asked_once_and_shown_after_its_last_step(
    here: Live, answering: Any, run: Run, tmp_path: Path
) -> None:
    file = str(tmp_path / "death.toml")
    Path(file).write_text(DEATH)
    planned = run("ask", "registry", file, "--plan", operator=True).stdout
    assert "2 sums are asked for, one after another. The limits below count all of them" in planned
    table = tmp_path / "fit.csv"
    shown = run("ask", "registry", file, "--csv", str(table), operator=True)
    assert "query 2, step 2 of 2: " in shown.stderr
    assert "Step 2 of 2. It is the last step: its answer is the result." in shown.stdout
    assert "its 2 steps together cost ε" in shown.stdout
    assert "patients with every value:" in shown.stdout
    with table.open(newline="") as written:
        assert [row["term"] for row in csv.DictReader(written)] == ["age", "intercept"]
    # The same question again is the stored answer, at no cost.
    again = json.loads(run("ask", "registry", file, "--json", operator=True).stdout)
    assert (again["number"], again["place"]["step"]) == (2, 2)
    listed = run("query", "show", "registry", "1", operator=True).stdout
    assert "Step 1 of 2. Query 2 followed from it." in listed


@pytest.mark.slow
def test_a_hospital_is_told_of_all_steps_before_it_approves(
    here: Live, registry: list[Site], run: Run, tmp_path: Path
) -> None:
    (tmp_path / "death.toml").write_text(DEATH)
    run("ask", "registry", str(tmp_path / "death.toml"), "--no-wait", operator=True)
    shown = run("query", "show", "registry", "1", "--home", str(registry[0].directory)).stdout
    assert "this is step 1 of 2. Each next step is asked by itself" in shown
    assert "one approval is for all steps. No step has less noise than" in shown


@pytest.mark.slow
def test_ready_questions_come_from_declared_columns(here: Live, registry: Any, run: Run, tmp_path: Path) -> None:
    columns = str(tmp_path / "columns.toml")
    run("query", "template", "columns", "-o", columns)
    for name in ("sites", "table-one", "missingness"):
        ready = ("ask", "registry", "--ready", name, "--columns", columns, "--noise", "20")
        shown = run(*ready, "--plan", operator=True).stdout
        assert "cholesterol" in shown
    assert "One patient changes them by at most 1.732" in shown
    nowhere = run("ask", "registry", "--ready", "table-one", "--noise", "6", code=1, operator=True)
    assert "declares no columns" in nowhere.output
    # A study that trains has declared them.
    here.open_study("trains", settings(statistics={"max_queries": 5, "max_cells": 1000}))
    told = run("ask", "trains", "--ready", "missingness", "--noise", "20", "--plan", operator=True).stdout
    assert "whether age is missing" in told
    changed = str(tmp_path / "ready.toml")
    run("query", "template", "table-one", "--columns", columns, "-o", changed)
    assert read_question(changed).question.kind == "tables"
    for name in READY:
        assert name in run("query", "template", "nothing", code=1).output


@pytest.mark.slow
def test_what_cannot_be_asked_is_said(here: Live, run: Run, tmp_path: Path, asked: str) -> None:
    columns = str(tmp_path / "columns.toml")
    run("query", "template", "columns", "-o", columns)
    ready = ("--ready", "table-one")
    for typed, words in (
        ((), "pass a question file, or --ready"),
        (ready, "--noise"),
        (("--ready", "nothing", "--noise", "3", "--columns", columns), "no ready question"),
        ((asked, "--noise", "3"), "go with --ready"),
        (("--ready", "evaluation", "--noise", "3", "--columns", columns), "--model goes with --ready evaluation"),
        ((*ready, "--noise", "3", "--columns", columns, "--model", "1"), "--model goes with --ready evaluation"),
        ((*ready, "--noise", "3", "--columns", asked), "no file of columns"),
        ((*ready, "--noise", "-3", "--columns", columns), "do not make a question"),
    ):
        assert words in run("ask", "registry", *typed, code=1, operator=True).output
