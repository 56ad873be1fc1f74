"""An audit of whole settings: all parts on one page, refusals in words, and what each part says of alarms."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from client_sdk.errors import ConfigurationError
from private_learning.tasks import load
from simulation.audit import run as audit_run
from simulation.audit.attack import judged
from simulation.audit.laws import LawResult
from simulation.audit.one_run import GuessPlan, StudyLaw
from simulation.audit.reconstruction import ReconstructionReport, reconstruction
from simulation.audit.run import AuditInputs, audit, one_run_section, steps_section
from simulation.population import Population
from tests.factories.hospitals import records
from tests.factories.settings import TASK_PARAMETERS, limit, settings


def _inputs(scheme: str = "parallel", clients: int = 5, **options: Any) -> AuditInputs:
    task = load("logistic-regression", TASK_PARAMETERS)
    population = Population.of({f"h{i}": task.dataset(records(40, seed=i)) for i in range(clients)})
    return AuditInputs(settings(scheme, **({"max_steps": 6} | options)), task, records(40), population, None, 20, 1)


def test_the_page_has_all_parts_and_the_same_seed_makes_the_same_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_run, "STEPS", 6)
    done: list[int] = []
    report = audit(_inputs(), done.append)
    assert done == [1, 2, 3, 4]
    assert [section.key for section in report.sections] == ["one_run", "steps", "membership", "reconstruction"]
    assert [section.attacked for section in report.sections] == [True, True, False, True]
    assert "Not attacked: Membership inference." in report.page()
    assert report.alarms == []
    assert json.loads(report.files()["audit.json"])["steps"]["steps"] == 6
    named = _inputs().settings.model_copy(update={"audit_sha256": report.page_sha256})
    assert audit(replace(_inputs(), settings=named)).page_sha256 == report.page_sha256
    assert report.settings_sha256 == _inputs().settings.digest()


def test_too_few_hospitals_and_studies_without_a_limit_for_patients_are_refused_in_words() -> None:
    with pytest.raises(ConfigurationError, match="name more with --clients"):
        audit(_inputs("sequential", clients=2))
    with pytest.raises(ConfigurationError, match="protects whole hospitals"):
        audit(_inputs("client"))
    without = _inputs("client", limits=[limit("client")])
    with pytest.raises(ConfigurationError, match="no classical limit of level instance"):
        _ = without.delta
    assert _inputs(limits=[limit("instance", delta=1e-4)]).delta == 1e-4


def test_refuted_guesses_and_failed_tests_are_alarms() -> None:
    found = judged(StudyLaw(4.0, 1.0, 1), 1e-5, 5_000, GuessPlan(500, 0.5), 5_000, 490, 1)
    assert one_run_section(found).alarms == ["the guesses refute the account"]
    section = steps_section(LawResult({"noise": 1e-9, "clipping": 0.5}, 40, 0.5))
    assert section.alarms == ["not so: the noise has the charged size"]
    assert [row[2] for row in section.rows] == ["ALARM", "no alarm"]
    assert "clipping could not be tested" in section.lines[-1]


@pytest.mark.parametrize("shown", [False, True])
def test_records_are_on_the_page_only_where_they_are_asked_for(monkeypatch: pytest.MonkeyPatch, shown: bool) -> None:
    monkeypatch.setattr(audit_run, "STEPS", 6)

    def pictured(*arguments: Any, **options: Any) -> ReconstructionReport:
        return reconstruction(*arguments, **options).model_copy(update={"picture": "AAAA"})

    monkeypatch.setattr(audit_run, "reconstruction", pictured)
    files = audit(replace(_inputs(), pictures=shown)).files()
    assert (b"base64,AAAA" in files["audit.html"]) == shown
    assert b"AAAA" not in files["audit.json"]


def test_a_part_that_does_not_go_with_the_settings_is_one_line() -> None:
    test = load("logistic-regression", TASK_PARAMETERS).dataset(records(20, seed=9))
    report = audit(replace(_inputs("client"), test=test, studies=4))
    lines = {section.key: section.lines for section in report.sections if not section.attacked}
    assert list(lines) == ["one_run", "steps", "reconstruction"]
    assert all(len(line) == 1 and "protects whole hospitals" in line[0] for line in lines.values())
    assert "nothing bounds these attacks" in report.page()
