"""Certificates and cards without a coordinator: every value is signed, every byte repeats, no text becomes source."""

from __future__ import annotations

import copy
import hashlib
import io
import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pypdf import PdfReader

from accounting.budget.ledger import Entry
from study_protocol.documents import check
from study_protocol.documents.card import Card, Notes
from study_protocol.documents.certify import Facts, compute_account, issue_certificate
from study_protocol.documents.markdown import as_markdown, plain
from study_protocol.documents.pdf_content import card_pdf, certificate_pdf
from study_protocol.documents.registry import as_yaml, entry
from study_protocol.study.messages import Metrics, ModelInfo, Study
from study_protocol.study.model_file import ModelMetadata
from study_protocol.study.plan_of import plan_of
from study_protocol.wire.signing import CERTIFICATE, LEDGER_HEAD, encode_public_key, sign_document
from study_protocol.wire.tensor_files import encode_model
from tests.factories.ledgers import after, opened
from tests.factories.settings import settings

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = encode_public_key(KEY.public_key())
WHEN = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
HOSTILE = [
    '#read("/etc/passwd") $x$ ]] "; \\ `raw` <script>alert(1)</script> [a](http://evil.example)',
    "W" * 200,
    "中文 日本語 한국어 עברית العربية हिन्दी 🫀",
    "#let x = sys.inputs; #panic(x)",
]


def ledger(*, named: bool = True, **options: Any) -> list[Entry]:
    """Two rounds. named: every model's file is named, as in studies that began with this version."""
    values: dict[str, Any] = {"max_steps": 6, **options}
    chosen = settings(**values)
    entries = opened(plan_of(chosen), chosen.as_json(), "sepsis")
    if named:
        entries.append(after(entries, "released", sha256="cd" * 32, bytes=160))
    for round in (1, 2):
        entries.append(after(entries, "reserved", round))
        entries.append(after(entries, "settled", round, report=None))
        if named:
            entries.append(after(entries, "released", round, sha256="ab" * 32, bytes=160))
    return entries


def signed(title: str = "Sepsis at four hospitals", **options: Any) -> check.OpenedCertificate:
    found = compute_account(ledger(**options))
    head = {"study": "sepsis", "entries": found.entries, "sha256": found.sha256}
    head_signature = sign_document(KEY, LEDGER_HEAD, head)
    model = ModelInfo(version=2, sha256="ab" * 32, bytes=160)
    facts = Facts(title, "running", None, WHEN, PUBLIC, head_signature, model)
    return sealed(issue_certificate(found, facts).model_dump(mode="json"))


def sealed(value: dict[str, Any]) -> check.OpenedCertificate:
    """With a good signature, whatever it says."""
    whole = {"certificate": value, "signature": sign_document(KEY, CERTIFICATE, value)}
    return check.open_certificate(json.dumps(whole).encode())


ONE = signed(bayesian=True)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict | list) and value:
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(inner, (*path, name))
    else:
        yield path


LEAVES = list(leaves(ONE.raw))


def changed(value: Any) -> list[Any]:
    """Other values that a reader could take for it."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, float(value)]
    if isinstance(value, float):
        return [value * (1 + 1e-15) + 5e-324, value / 2 if value else 0.5]
    if isinstance(value, str):
        return [value + " ", value.swapcase() if value.swapcase() != value else value[:-1]]
    return [0, "x"]


@pytest.mark.parametrize("which", [0, 1])
def test_any_change_of_any_value_is_found(which: int) -> None:
    for path in LEAVES:
        _require_found(path, which)


def _require_found(path: tuple[Any, ...], which: int) -> None:
    raw = copy.deepcopy(ONE.raw)
    inside = raw
    for part in path[:-1]:
        inside = inside[part]
    others = changed(inside[path[-1]])
    inside[path[-1]] = others[which % len(others)]
    try:
        forged = check.open_certificate(json.dumps(raw).encode())
    except check.NoCertificate:
        return
    assert check.check_signature(forged, PUBLIC, "the key", is_confirmed=True).result == "bad", path


def test_what_is_unchanged_is_good_and_every_number_follows_from_the_ledger() -> None:
    assert check.check_signature(ONE, PUBLIC, "the key", is_confirmed=True).result == "good"
    assert check.check_signature(ONE, PUBLIC, "its own key", is_confirmed=False).result == "not known"
    assert {one.result for one in check.check_ledger(ONE.certificate, ledger(bayesian=True))} == {"good"}
    assert {one.result for one in check.check_ledger(ONE.certificate, ledger(bayesian=True)[:3])} == {"not known"}
    assert "bad" in {
        one.result for one in check.check_ledger(ONE.certificate, ledger(bayesian=True, noise_multiplier=2.0))
    }


def _other_order(stated: dict[str, Any]) -> None:
    stated["limits"][1]["certificate"]["order"] = 99.0


@pytest.mark.parametrize(
    ("lie", "found"),
    [
        (lambda stated: stated["model"].update(version=5), "the numbers end with round 2"),
        (lambda stated: stated["ledger"].update(signature="B" * 86), "is not signed"),
        (lambda stated: stated["limits"][1].update(rounds_left_estimate=10**6), "limit.rounds_left_estimate"),
        (_other_order, "limit.certificate.order"),
    ],
    ids=["a later model", "head", "rounds left", "order"],
)
def test_what_a_coordinator_signs_beside_the_ledger_is_found(lie: Callable[[dict[str, Any]], None], found: str) -> None:
    value = copy.deepcopy(ONE.raw["certificate"])
    lie(value)
    document = sealed(value)
    assert check.check_signature(document, PUBLIC, "the key", is_confirmed=True).result == "good"
    bad = [one.words for one in check.check_ledger(document.certificate, ledger(bayesian=True)) if one.result == "bad"]
    # A lie about the model or a limit is found by a second check, too.
    assert any(found in words for words in bad), bad


def test_rounds_that_were_charged_since_are_told() -> None:
    entries = ledger(bayesian=True)
    entries.append(after(entries, "reserved", 3))
    entries.append(after(entries, "settled", 3, report=None))
    found = {one.subject: one for one in check.check_ledger(ONE.certificate, entries)}
    assert {one.result for one in found.values()} == {"good"}
    assert "1 later round is in the ledger and not in these numbers" in found["ledger"].words


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (("sepsis", 2), "is the model that round 2 released"),
        (("sepsis", 5), "it is of study sepsis, round 5"),
        (("stroke", 2), "it is of study stroke, round 2"),
        (None, "no safetensors file"),
    ],
    ids=["its own", "round", "study", "no model"],
)
def test_a_model_s_file_must_say_what_its_certificate_says(
    said: tuple[str, int] | None, found: str, tmp_path: Path
) -> None:
    """A coordinator could sign the hash of whatever file it wants."""
    chosen, path = settings(bayesian=True, max_steps=6), tmp_path / "model.safetensors"
    body = b"no safetensors file at all"
    if said is not None:
        header = ModelMetadata.of(said[0], chosen, said[1], (5, "ab" * 32)).header()
        body = encode_model({"bias": np.zeros(1, np.float32)}, header)
    path.write_bytes(body)
    value = copy.deepcopy(ONE.raw["certificate"])
    value["model"] = {"version": 2, "sha256": hashlib.sha256(body).hexdigest(), "bytes": len(body)}
    result = check.check_model(sealed(value).certificate, path)
    assert result.result == ("good" if said == ("sepsis", 2) else "bad")
    assert found.replace("no safetensors file", "not a safetensors file") in result.words


@pytest.mark.parametrize(
    ("study", "rounds", "result"),
    [("sepsis", (1, 2), "not known"), ("sepsis", (2, 5), "bad"), ("stroke", (1, 2), "bad")],
    ids=["counted", "later than the numbers", "another study's"],
)
def test_a_mean_of_released_models_is_told_from_a_wrong_file(
    study: str, rounds: tuple[int, ...], result: str, tmp_path: Path
) -> None:
    value, path = copy.deepcopy(ONE.raw["certificate"]), tmp_path / "model.safetensors"
    value["model"] = {"version": 2, "sha256": "ab" * 32, "bytes": 1}
    stated = sealed(value).certificate
    said = ModelMetadata.of(study, settings(bayesian=True, max_steps=6), max(rounds), (5, "ab" * 32))
    said = said.model_copy(update={"settings_sha256": stated.settings_sha256, "mean_of": rounds})
    path.write_bytes(encode_model({"bias": np.zeros(1, np.float32)}, said.header()))
    found = check.check_model(stated, path)
    assert found.result == result
    # Such a file is not shown to be good by what it says of itself.
    assert ("no certificate names its bytes" in found.words) == (result == "not known")


def test_a_key_that_only_pretends_to_be_the_coordinator_s_is_no_good() -> None:
    """Signed by a stranger, who names the coordinator's fingerprint for people to read."""
    stranger = Ed25519PrivateKey.generate()
    key = encode_public_key(stranger.public_key())
    value = {**ONE.raw["certificate"], "coordinator_key": key}
    whole = {"certificate": value, "signature": sign_document(stranger, CERTIFICATE, value)}
    found = check.check_signature(
        check.open_certificate(json.dumps(whole).encode()), key, "its own key", is_confirmed=False
    )
    assert (found.result, "names another key" in found.words) == ("bad", True)


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


@pytest.mark.parametrize(
    ("options", "void"),
    [
        ({}, False),
        ({"bayesian": True, "disclosure": "plain"}, True),
        ({"bayesian": True, "disclosure": "at-end"}, True),
        ({"bayesian": True, "disclosure": "noised", "histogram_noise": {"std": 12.0, "every": 2}}, False),
    ],
)
def test_noise_in_shares_holds_against_the_coordinator_unless_it_reads_distances(
    options: dict[str, Any], void: bool
) -> None:
    stated = signed(scheme="client-distributed", **options).certificate
    said = {one.asks: one.answer for one in stated.nist}
    assert ("void against the coordinator" in said["Trust model"]) is void
    assert ("all that the coordinator saw" in said["Against whom"]) is not void
    assert said["Trust model"].startswith("distributed model")
    assert "without noise and is trusted" not in said["Trust model"]
    assert "with its noise, once with its data, once with zeros" in said["Which data sets are compared: neighbours"]
    assert "one hospital's update is clipped" in said["Mechanism"]
    assert said["Sampling"] == "client level: no credit is taken"
    assert (stated.mechanism.scheme, stated.mechanism.title) == ("client-distributed", "central noise in shares")
    (classical,) = [one for one in stated.limits if (one.level, one.definition) == ("client", "classical")]
    assert "3 honest clients added their shares of the noise to every sum" in classical.certificate["assumption"]
    assert "had its data used (that it is a member is known)" in classical.meaning
    seen = " ".join(stated.who_sees_what)
    assert "the sum of all hospitals' updates, with noise that is added at the hospital" in seen


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


def text_of(pdf: bytes) -> str:
    return " ".join(page.extract_text() for page in PdfReader(io.BytesIO(pdf)).pages)


@pytest.mark.parametrize("title", HOSTILE, ids=["source", "long", "scripts", "inputs"])
def test_no_title_becomes_source_and_equal_certificates_are_equal_bytes(title: str) -> None:
    document = signed(title)
    pdf = certificate_pdf(document)
    assert certificate_pdf(document) == pdf
    said = text_of(pdf)
    assert "root:" not in said
    for page in PdfReader(io.BytesIO(pdf)).pages:
        assert float(page.mediabox.width) == pytest.approx(595.28, abs=1)
    attached = PdfReader(io.BytesIO(pdf)).attachments["certificate.json"][0]
    assert json.loads(attached) == document.raw
    if title.startswith("中"):
        assert "U+4E2D" in said


def test_the_pdf_can_be_read_aloud() -> None:
    reader = PdfReader(io.BytesIO(certificate_pdf(ONE)))
    root: Any = reader.trailer["/Root"]
    assert root["/Lang"] == "en-GB"
    assert root["/MarkInfo"]["/Marked"]
    assert reader.metadata is not None
    assert "Sepsis at four hospitals" in str(reader.metadata.title)
    assert len(reader.pages) <= 4


def study(title: str) -> Study:
    chosen, stated = settings(bayesian=True, max_steps=6), ONE.certificate
    return Study(
        study="sepsis",
        title=title,
        state="running",
        state_since=WHEN,
        pause_reason=None,
        stop_reason=None,
        invited=3,
        under_way=None,
        settings=chosen,
        settings_sha256=chosen.digest(),
        model=stated.model,
        clients=3,
        rounds=2,
        coordinator_key=PUBLIC,
        created_at=WHEN,
    )


@pytest.mark.parametrize("title", HOSTILE, ids=["source", "long", "scripts", "inputs"])
def test_a_card_shows_the_words_of_others_as_text_and_its_metadata_can_be_read(title: str) -> None:
    measured = Metrics(evaluation_set=title[:200], values={"accuracy": 0.91})
    card = Card(study(title), ONE.certificate, ((2, measured),), Notes(license="apache-2.0"))
    text = as_markdown(card)
    _, head, body = text.split("---\n", 2)
    values = yaml.safe_load(head)
    assert (values["license"], values["model-index"][0]["name"]) == ("apache-2.0", title)
    assert "<script>" not in body.replace("\\<script\\>", "")
    assert re.search(r"(?<!\\)\]\(|(?<!\\)://", body) is None
    assert f"# {plain(title)}" in body
    assert "outside the guarantee" in body
    assert body.count("TO BE WRITTEN") == 6
    assert card_pdf(card) == card_pdf(card)


def test_a_hospital_that_left_is_counted_with_those_whose_records_were_used() -> None:
    value = copy.deepcopy(ONE.raw["certificate"])
    value["members"] |= {"active": 2, "least": 2, "most": 3}
    stated = sealed(value).certificate
    assert "2 to 3 hospitals" in entry(stated)["deployment"]["basic"]["description"]
    assert "Records of 2 to 3 hospitals" in as_markdown(Card(study("Sepsis"), stated, ()))


def test_a_card_says_which_part_was_trained_on_which_file() -> None:
    part = {"trainable": ["4.*", "2.bias"], "backbone": {"sha256": "ab" * 32}}
    chosen = settings(bayesian=True, max_steps=6, training=part)
    text = as_markdown(Card(study("Sepsis").model_copy(update={"settings": chosen}), ONE.certificate, ()))
    assert "Trained part" in text
    assert "2.bias" in text
    assert "ab" * 32 in text
    assert "Trained part" not in as_markdown(Card(study("Sepsis"), ONE.certificate, ()))


def test_the_registry_s_unit_is_that_of_its_parameters() -> None:
    """One ε is stated: in scheme joint it is the patients' and not the hospitals', who lose more."""
    stated = signed(scheme="joint").certificate
    loss = entry(stated)["deployment"]["privacy_loss"]
    assert (loss["privacy_unit"], stated.limits[0].level) == ("patient", "instance")
    assert all(limit.meaning in loss["privacy_parameters_details"] for limit in stated.limits)


def test_the_registry_s_entry_is_yaml_with_the_safe_side_of_every_number() -> None:
    value = entry(ONE.certificate)
    assert yaml.safe_load(as_yaml(value)) == value
    spent = next(one.spent for one in ONE.certificate.limits if one.definition == "classical" and one.spent)
    assert value["deployment"]["privacy_loss"]["privacy_parameters"]["epsilon"] >= spent
