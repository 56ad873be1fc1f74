"""Certificates that are checked without a coordinator: every value is signed and follows from the ledger."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from study_protocol.documents import check
from study_protocol.documents.check import NoCertificate, open_certificate
from study_protocol.wire.rounded import number
from study_protocol.wire.signing import CERTIFICATE, encode_public_key, sign_document
from tests.factories.certificates import ONE, PUBLIC, leaves, ledger, sealed, signed
from tests.factories.ledgers import after
from tests.factories.settings import limit

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


def test_the_clip_norm_of_a_model_is_that_of_its_ledger_entry() -> None:
    moving = {"adaptive_clip": {"quantile": 0.5, "rate": 0.2}, "noise_multiplier": 0.5}
    value = signed(**moving).certificate.model_dump(mode="json")
    assert value["model"]["clip_norm"] == 0.75
    for norm, result in ((0.75, "good"), (0.8, "bad")):
        value["model"]["clip_norm"] = norm
        found = check.check_ledger(sealed(value).certificate, ledger(**moving))
        assert [one.result for one in found if one.subject == "named model"] == [result]
        assert all(one.result == "good" for one in found) == (result == "good")


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


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b"\xff",
        b'{"certificate":{},"signature":""}',
        b'{"certificate":1,"certificate":1,"signature":""}',
    ],
    ids=["empty", "nothing", "list", "no text", "no certificate", "twice"],
)
def test_what_is_no_certificate_is_refused_in_words(body: bytes) -> None:
    with pytest.raises(NoCertificate, match="no certificate that this version can read, or it was changed"):
        open_certificate(body)


def test_of_a_pdf_the_attachment_is_asked_for() -> None:
    with pytest.raises(NoCertificate, match="save the JSON that is attached to it"):
        open_certificate(b"%PDF-1.7")


PLANNED: dict[str, Any] = {
    "limits": [limit("instance", epsilon=4.0, enforcement="fixed-plan")],
    "noise_multiplier": 2.0,
    "sampling_rate": 0.2,
}


def _checked(change: Callable[[dict[str, Any]], None]) -> dict[str, check.Check]:
    value = copy.deepcopy(signed(**PLANNED).raw["certificate"])
    change(value)
    return {one.subject: one for one in check.check_ledger(sealed(value).certificate, ledger(**PLANNED))}


def _scaled(factor: float) -> Callable[[dict[str, Any]], None]:
    def change(value: dict[str, Any]) -> None:
        stated = value["limits"][0]
        stated["spent"] = stated["certificate"]["epsilon"] = stated["spent"] * factor
        stated["remaining"] = stated["epsilon"] - stated["spent"]
        for point in value["spent_after"]:
            point["spent"][0] = stated["spent"]

    return change


def test_the_whole_plan_is_computed_again_from_the_settings() -> None:
    found = _checked(lambda value: None)
    assert {one.result for one in found.values()} == {"good"}
    words = found["ε, instance classical"].words
    assert "a fixed plan of 6 steps, computed again from the settings" in words
    assert "step 2 of 6" in words


def test_a_forged_smaller_number_of_a_plan_is_refused() -> None:
    """The running ε in place of the plan's is far below it; a thousandth less is found, too."""
    for factor in (0.5, 0.999, 1 - 1e-5, 1.001):
        assert _checked(_scaled(factor))["ε, instance classical"].result == "bad"


def test_the_last_digit_of_another_processor_is_not_known_and_not_bad() -> None:
    """Nine digits are stated, and a Fourier transform's last bits may choose the ninth."""
    found = _checked(_scaled(1 + 1e-8))
    assert found["ε, instance classical"].result == "not known"
    assert found["everything else"].result == "good"


@pytest.mark.parametrize(("part", "value"), [("used", 1), ("allowed", 7), ("reserved", 1)])
def test_another_step_of_a_plan_is_found(part: str, value: int) -> None:
    def change(stated: dict[str, Any]) -> None:
        stated["limits"][0]["progress"]["steps"][part] = value

    assert f"steps.{part}" in _checked(change)["ε, instance classical"].words


def test_a_certificate_names_the_guarantee_of_the_plan_first() -> None:
    stated = signed(**PLANNED).certificate
    guarantee, running = stated.limits[0].spent, stated.limits[0].running
    assert guarantee is not None
    assert running is not None
    assert running.epsilon is not None
    assert guarantee > running.epsilon
    assert stated.limits[0].meaning.startswith(f"Guaranteed: ε {number(guarantee)} at δ")
    assert "step 2 of 6" in stated.limits[0].meaning
    # Nothing but its own report has the ε so far.
    assert number(running.epsilon) not in " ".join([*stated.summary, *(one.answer for one in stated.nist)])
    assert any("the guarantee covers later ones as well" in line for line in stated.summary)
