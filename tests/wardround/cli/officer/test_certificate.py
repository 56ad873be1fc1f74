"""A certificate as a data-protection officer meets it: written, laid out, and checked in every way that is promised.

The commands are those of wardround.cli.officer.certificate.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from client_sdk.api.client import Client
from study_protocol.study.messages import Study
from study_protocol.wire.signing import CERTIFICATE
from tests.factories.certificates import text_of
from tests.factories.commands import Run, finished
from tests.factories.live_coordinator import Live
from tests.factories.settings import changed


@pytest.fixture
def written(here: Live, run: Run, tmp_path: Path) -> Path:
    """The certificate of a finished study, its ledger and its model."""
    finished(run, here, tmp_path)
    path = tmp_path / "certificate.json"
    run("certificate", "show", "sepsis", "-o", str(path))
    run("ledger", "export", "sepsis", "--out", str(tmp_path / "ledger.jsonl"), operator=True)
    run("study", "model", "sepsis", "-o", str(tmp_path / "model.safetensors"))
    return path


def verify(run: Run, path: Path, *more: str, code: int = 0) -> dict[str, tuple[str, str]]:
    """By check: its result, and what was found."""
    said = json.loads(run("certificate", "verify", str(path), *more, "--json", code=code).stdout)
    return {one["what"]: (one["result"], one["words"]) for one in said}


@pytest.mark.slow
def test_a_hospital_checks_all_of_it_with_the_key_that_it_pinned(run: Run, written: Path) -> None:
    folder = written.parent
    found = verify(run, written, "--model", str(folder / "model.safetensors"), "--ledger", str(folder / "ledger.jsonl"))
    assert {result for result, _ in found.values()} == {"good"}
    assert "pinned at enrolment" in found["signature"][1]
    assert {"signature", "model", "ledger", "ε, instance classical", "ε, instance bayesian"} <= set(found)
    assert found["sentences"][1] == "each is what these numbers mean"


@pytest.mark.slow
def test_somebody_else_names_the_key_or_is_told_that_nothing_is_proved(
    here: Live, run: Run, written: Path, tmp_path: Path
) -> None:
    alone = ("--home", str(tmp_path / "nobody"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WARDROUND_CLIENT_HOME", str(tmp_path / "nobody"))
        result, words = verify(run, written, code=1)["signature"]
        assert (result, "proves nothing about who made it: name the fingerprint" in words) == ("not known", True)
        mark = here.coordinator.signer.fingerprint
        assert verify(run, written, "--coordinator-key", mark)["signature"][0] == "good"
        other = run("certificate", "verify", str(written), "--coordinator-key", "a" * 64, code=4).stderr
        assert "not the one that you named" in other
    assert "cannot be read" in run("certificate", "verify", str(written), *alone, code=1).stderr


@pytest.mark.slow
def test_another_model_a_shorter_ledger_and_another_ledger_are_told_apart(run: Run, written: Path) -> None:
    other = written.with_name("other.safetensors")
    other.write_bytes(b"another model")
    assert verify(run, written, "--model", str(other), code=4)["model"][0] == "bad"
    lines = written.with_name("ledger.jsonl").read_text().splitlines()
    broken = written.with_name("broken.jsonl")
    broken.write_text("\n".join([*lines[:-2], lines[-1]]) + "\n")
    result, words = verify(run, written, "--ledger", str(broken), code=4)["ledger"]
    assert (result, "do not lead to the head" in words) == ("bad", True)


def test_a_coordinator_that_signs_a_smaller_epsilon_is_found_by_the_ledger(here: Live, run: Run, written: Path) -> None:
    """The signature is good: only the raw events say that the number is not."""
    value = json.loads(written.read_text())
    stated = value["certificate"]
    at = next(i for i, limit in enumerate(stated["limits"]) if limit["definition"] == "classical" and limit["spent"])
    stated["limits"][at]["spent"] /= 2
    value["signature"] = here.coordinator.signer.sign(CERTIFICATE, stated)
    lying = written.with_name("lying.json")
    lying.write_text(json.dumps(value))
    assert verify(run, lying)["signature"][0] == "good"
    found = verify(run, lying, "--ledger", str(written.with_name("ledger.jsonl")), code=4)
    assert found["ε, instance classical"] == ("bad", "the ledger gives another number: limit.spent")
    # A smaller number that nobody signed makes no PDF, which would look like any other.
    value["signature"] = json.loads(written.read_text())["signature"]
    changed = written.with_name("changed.json")
    changed.write_text(json.dumps(value))
    said = run("certificate", "pdf", str(changed), "-o", str(written.with_name("changed.pdf")), code=4).stderr
    assert "the certificate was changed after it was signed" in said
    assert not written.with_name("changed.pdf").exists()
    # Nor can it put other words beside the numbers unnoticed.
    value = json.loads(written.read_text())
    value["certificate"]["summary"][1] = "Nothing can be learnt about anybody."
    value["signature"] = here.coordinator.signer.sign(CERTIFICATE, value["certificate"])
    lying.write_text(json.dumps(value))
    found = verify(run, lying, "--ledger", str(written.with_name("ledger.jsonl")), code=1)
    assert (found["sentences"][0], "summary[1]" in found["sentences"][1]) == ("not known", True)


@pytest.mark.slow
def test_one_released_model_has_a_certificate_of_its_own(run: Run, written: Path, tmp_path: Path) -> None:
    first = tmp_path / "first.json"
    run("certificate", "show", "sepsis", "--round", "1", "-o", str(first))
    one, all_of_it = (json.loads(path.read_text())["certificate"] for path in (first, written))
    assert (one["round"], one["model"]["version"], all_of_it["round"]) == (1, 1, 2)
    spent = [[limit["spent"] for limit in stated["limits"] if limit["spent"]] for stated in (one, all_of_it)]
    assert all(early < late for early, late in zip(*spent, strict=True))
    assert verify(run, first, "--ledger", str(tmp_path / "ledger.jsonl"))["everything else"][0] == "good"
    assert "released no model" in run("certificate", "show", "sepsis", "--round", "7", code=1).stderr


@pytest.mark.slow
def test_it_is_printed_in_words_as_pdf_and_as_an_entry_of_the_registry(run: Run, written: Path, tmp_path: Path) -> None:
    said = run("certificate", "show", "sepsis").stdout
    words = " ".join(said.split())
    assert "who knows all other records, and who gives equal odds to both, guesses rightly whether" in words
    assert "with a probability of at most" in words
    assert "It is an average: on a rare output the attacker may be surer" in words
    assert "does not hold against whoever sees" in said
    assert "signed with the key that was pinned at enrolment" in said
    run("certificate", "show", "sepsis", "-o", str(tmp_path / "direct.pdf"))
    run("certificate", "pdf", str(written), "-o", str(tmp_path / "later.pdf"))
    assert (tmp_path / "later.pdf").read_bytes().startswith(b"%PDF-")
    entry: dict[str, Any] = yaml.safe_load(run("certificate", "show", "sepsis", "--format", "registry").stdout)
    loss = entry["deployment"]["privacy_loss"]
    stated = json.loads(written.read_text())["certificate"]["limits"]
    classical = next(limit for limit in stated if limit["definition"] == "classical" and limit["spent"])
    assert loss["privacy_parameters"]["epsilon"] >= classical["spent"]
    assert loss["privacy_parameters"]["delta"] == classical["delta"]
    assert entry["deployment"]["basic"]["intended_use"] == "TO BE WRITTEN"


@pytest.mark.slow
def test_a_card_is_not_made_of_settings_that_nobody_signed(
    run: Run, written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The certificate is signed; what the coordinator answers about the study is not."""
    run("card", "sepsis", "-o", str(tmp_path / "card.md"))
    asked = Client.study

    def louder(client: Client, study: str) -> Study:
        shown = asked(client, study)
        more = shown.settings.privacy.noise_multiplier * 2
        return shown.model_copy(update={"settings": changed(shown.settings, noise_multiplier=more)})

    monkeypatch.setattr(Client, "study", louder)
    said = run("card", "sepsis", "-o", str(tmp_path / "louder.md"), code=4).stderr
    assert "not those of its certificate" in said
    assert not (tmp_path / "louder.md").exists()


@pytest.mark.slow
def test_what_is_asked_wrongly_is_named(run: Run, written: Path, tmp_path: Path) -> None:
    assert "is none of json, pdf" in run("certificate", "show", "sepsis", "-o", "x.docx", code=1).stderr
    assert "pass -o" in run("certificate", "show", "sepsis", "--format", "pdf", code=1).stderr
    (tmp_path / "no.json").write_text('{"certificate": {}, "certificate": {}}')
    assert "is no certificate" in run("certificate", "verify", str(tmp_path / "no.json"), code=1).stderr
    assert "No such file" in run("certificate", "verify", str(tmp_path / "gone.json"), code=1).stderr


@pytest.mark.slow
def test_the_mean_that_people_use_has_one_digest_everywhere(here: Live, run: Run, tmp_path: Path) -> None:
    finished(run, here, tmp_path, max_steps=3, training={"optimiser": {"averaging": {"name": "tail", "share": 0.7}}})
    file, model, released = (tmp_path / name for name in ("certificate.json", "model.safetensors", "released"))
    run("study", "model", "sepsis", "-o", str(model), "--released", str(released))
    run("certificate", "show", "sepsis", "-o", str(file))
    run("ledger", "export", "sepsis", "--out", str(tmp_path / "ledger.jsonl"), operator=True)
    digest = hashlib.sha256(model.read_bytes()).hexdigest()
    assert json.loads(file.read_text())["certificate"]["result"]["sha256"] == digest
    assert verify(run, file, "--model", str(model))["model"][0] == "good"
    found = verify(
        run,
        *(file, "--model", str(model), "--ledger", str(tmp_path / "ledger.jsonl"), "--released", str(released)),
    )
    assert {result for result, _ in found.values()} == {"good"}
    assert "computed again from 3 released models, each as the ledger names it" in found["mean"][1]
    for name in ("card.md", "card.pdf"):
        run("card", "sepsis", "-o", str(tmp_path / name))
    run("certificate", "pdf", str(file), "-o", str(tmp_path / "certificate.pdf"))
    card = (tmp_path / "card.md").read_text()
    assert digest in card
    assert "made of rounds 1 to 3" in card
    newest = json.loads(file.read_text())["certificate"]["model"]["sha256"]
    for name in ("card.pdf", "certificate.pdf"):
        words = "".join(text_of((tmp_path / name).read_bytes()).split())
        assert (digest in words, newest in words) == (True, False), name
    model.write_bytes(model.read_bytes()[:-1] + b"\x01")
    assert verify(run, file, "--model", str(model), code=4)["model"][0] == "bad"
