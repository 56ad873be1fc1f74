"""From a ledger's entries to a certificate, in every scheme."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from typing import Any

import pytest

from accounting.budget.history import SpentAfter
from accounting.errors import InvalidArgument
from study_protocol.documents.certify import Facts, compute_account, how_to_verify, issue_certificate
from study_protocol.documents.check import check_ledger
from study_protocol.documents.pdf_content import certificate_pdf
from study_protocol.study.messages import ModelInfo
from study_protocol.study.plan_of import plan_of
from study_protocol.study.settings import StudySettings
from study_protocol.wire.signing import LEDGER_HEAD, sign_document
from tests.factories.certificates import KEY, PUBLIC, WHEN, ledger, signed
from tests.factories.ledgers import after, opened
from tests.factories.settings import settings


@pytest.mark.slow_cases("bayesian-joint", "bayesian-parallel", "bayesian-sequential", "classical-sequential")
@pytest.mark.parametrize("scheme", ["client", "client-distributed", "parallel", "sequential", "joint"])
@pytest.mark.parametrize("bayesian", [False, True], ids=["classical", "bayesian"])
def test_every_scheme_has_a_certificate_that_holds_what_the_budget_says(scheme: str, bayesian: bool) -> None:
    from accounting.budget.budget import replay

    options: dict[str, Any] = {"scheme": scheme, "bayesian": bayesian}
    found = signed(**options).certificate
    stated = [limit.model_dump(exclude={"meaning"}) for limit in found.limits]
    assert json.loads(json.dumps(stated)) == json.loads(json.dumps(replay(ledger(**options)).statements()))
    assert certificate_pdf(signed(**options)).startswith(b"%PDF-")
    for limit in found.limits:
        void = "does not hold against" in str((limit.certificate or {}).get("assumption"))
        assert void == ("does not hold against" in limit.meaning), "a warning is not left out"


def test_what_the_end_shows_voids_the_certificates_of_earlier_rounds_too() -> None:
    entries = ledger(bayesian=True, disclosure="at-end")
    assert "does not hold" not in str(compute_account(entries, 1).limits)
    ended = [*entries, after(entries, "finished", reason="stopped", report=[None, None])]
    assert "does not hold against whoever reads" in str(compute_account(ended, 1).limits)


@pytest.mark.parametrize(("scheme", "seen"), [("parallel", "all that the coordinator saw in round 1"), ("client", "")])
def test_the_numbers_of_a_round_are_not_promised_against_who_sees_later_ones(scheme: str, seen: str) -> None:
    """ε of round 1 says nothing about the model of round 2: a sentence about all released models would be false."""
    entries, facts = ledger(scheme=scheme), Facts("", "running", None, WHEN, PUBLIC, "A" * 86, None)
    early, late = (issue_certificate(compute_account(entries, round), facts) for round in (1, None))
    whom = [next(one.answer for one in stated.nist if one.asks == "Against whom") for stated in (early, late)]
    for said in (early.limits[0].meaning, whom[0]):
        assert "the model that round 1 released" in said
        assert "the released models" not in said
        assert seen in said
    assert all("rounds 1 to 2" in said for said in (late.limits[0].meaning, whom[1]))
    assert any("up to round 1; what a later round gives away is not" in line for line in early.summary)


def test_what_a_ledger_says_of_its_newest_model_is_taken_and_not_the_coordinator_s_word() -> None:
    entries, head = ledger(), "A" * 86
    word = Facts("", "finished", "stopped", WHEN, PUBLIC, head, ModelInfo(version=9, sha256="ef" * 32, bytes=1))
    bound = issue_certificate(compute_account(entries), word)
    assert (bound.state, bound.stop_reason) == ("running", None)
    assert bound.model == ModelInfo(version=2, sha256="ab" * 32, bytes=160)
    # Ledgers of earlier versions name no model.
    free = issue_certificate(compute_account(ledger(named=False)), word)
    assert (free.state, free.stop_reason, free.model) == ("finished", "stopped", word.model)


def test_numbers_of_an_earlier_round_count_no_later_entry() -> None:
    entries = ledger()
    first, last = compute_account(entries, 1), compute_account(entries)
    assert (first.round, last.round) == (1, 2)
    assert (first.counted_entry, first.entries, last.counted_entry) == (4, len(entries), len(entries))
    assert first.limits[0].spent < last.limits[0].spent  # type: ignore[operator]
    assert first.sha256 == last.sha256 == entries[-1].sha256
    with pytest.raises(InvalidArgument):
        compute_account(entries, 7)


def test_commands_to_verify_compare_the_coordinator_s_own_key() -> None:
    commands = [step.command for step in how_to_verify("sepsis", "ab:cd")]
    assert commands[0] == "wardround certificate verify certificate.json"
    assert "wardround ledger export sepsis --out ledger.jsonl" in commands
    assert sum(command.endswith("--coordinator-key ab:cd") for command in commands) == 3


def test_of_many_rounds_the_curve_has_the_first_the_last_and_as_many_as_are_seen() -> None:
    found = compute_account(ledger())
    facts = Facts("", "running", None, WHEN, PUBLIC, "A" * 86, None)
    for rounds in (199, 200, 201, 5000):
        charged = tuple(SpentAfter(round, (0.5,)) for round in range(1, rounds + 1))
        points = issue_certificate(replace(found, charged=charged), facts).spent_after
        numbers = [point.round for point in points]
        assert len(numbers) == min(rounds, 200)
        assert (numbers[0], numbers[-1]) == (1, rounds)
        gaps = {after - before for before, after in itertools.pairwise(numbers)}
        assert max(gaps) - min(gaps) <= 1


def test_an_audit_that_the_settings_name_is_one_line_and_another_digest_is_noticed() -> None:
    """The line follows from the ledger's first entry: a certificate that names another page does not."""
    chosen = settings(max_steps=6).as_json() | {"audit_sha256": "ab" * 32}
    entries = opened(plan_of(StudySettings.model_validate(chosen)), chosen, "sepsis")
    head = {"study": "sepsis", "entries": len(entries), "sha256": entries[-1].sha256}
    facts = Facts("", "enrolling", None, WHEN, PUBLIC, sign_document(KEY, LEDGER_HEAD, head), None)
    found = issue_certificate(compute_account(entries), facts)
    assert [line for line in found.summary if "The study lead states" in line and "ab" * 32 in line] == [
        found.summary[-1]
    ]
    assert not any("audit" in line or "attacked" in line for line in signed().certificate.summary)
    lying = found.model_copy(update={"summary": [line.replace("ab" * 32, "cd" * 32) for line in found.summary]})
    results = [{check.result for check in check_ledger(stated, entries)} for stated in (found, lying)]
    assert "bad" not in results[0]
    assert results[0] != results[1]
