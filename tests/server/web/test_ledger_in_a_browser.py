"""The ledger's check in the browser: whole ledgers pass, all damage is found, and the page says what that shows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.factories.live_coordinator import Live
from tests.server.web.conftest import Tabs


@pytest.mark.slow
def test_each_line_has_the_hash_that_the_ledger_names(here: Live) -> None:
    """The same by another way: Python's own hash, against the API's ledger."""
    lines = here.send("GET", "/dashboard/ward/ledger.txt", here.viewer_key).content.decode().splitlines()
    entries = here.operator("GET", "/v1/studies/ward/ledger").json()["entries"]
    assert [hashlib.sha256(line.encode()).hexdigest() for line in lines] == [entry["sha256"] for entry in entries]
    assert here.send("GET", "/dashboard/ward/ledger.txt").status_code == 401
    page = here.send("GET", "/dashboard/ward/ledger.txt?after=3&limit=2", here.viewer_key).text
    assert page.splitlines() == lines[3:5]


def _check(page: Any) -> Any:
    page.get_by_role("button", name="Check the ledger in this browser").click()
    outcome = page.locator("#proof [role=status] .notice")
    outcome.wait_for()
    return outcome


@pytest.mark.slow
def test_a_whole_ledger_passes_and_the_page_says_who_sent_it(tabs: Tabs, here: Live) -> None:
    page = tabs.open("/dashboard/ward")
    outcome = _check(page).inner_text()
    entries = here.operator("GET", "/v1/studies/ward/budget").json()["ledger"]["entries"]
    assert f"The chain is whole: {entries} entries" in outcome
    assert "The head is signed" in outcome
    words = page.inner_text("#proof")
    assert "31 rounds reserved; 27 settled by their report; 3 cancelled" in words
    assert "This page came from the coordinator itself." in words
    assert f"wardround ledger verify ward --server {here.url} --coordinator-key" in words


def _other_number(lines: list[str]) -> list[str]:
    return [lines[0].replace('"noise_multiplier":4.0', '"noise_multiplier":40.0'), *lines[1:]]


def _without(lines: list[str]) -> list[str]:
    return [*lines[:7], *lines[8:]]


def _cut(lines: list[str]) -> list[str]:
    return lines[:-1]


def _last(lines: list[str]) -> list[str]:
    return [*lines[:-1], lines[-1].replace('"can_continue":true', '"can_continue":false')]


@pytest.mark.quick("another number")
@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (_other_number, "Entry 2 does not hang on the entry before it"),
        (_without, "Entry 8 is missing"),
        (_cut, "the signed head says"),
        (_last, "The last entry does not have the hash"),
    ],
    ids=["another number", "an entry less", "cut off", "last entry"],
)
def test_damage_is_found_and_named(tabs: Tabs, damage: Callable[[list[str]], list[str]], found: str) -> None:
    page = tabs.open("/dashboard/ward")

    def damaged(route: Any) -> None:
        answer = route.fetch()
        lines = answer.text().splitlines()
        assert damage(lines) != lines
        route.fulfill(response=answer, body="\n".join(damage(lines)))

    page.route("**/ledger.txt?*", damaged)
    outcome = _check(page)
    assert found in outcome.inner_text()
    assert "bad" in outcome.get_attribute("class")


@pytest.mark.slow
@pytest.mark.parametrize("field", ["signature", "head"])
def test_a_head_that_is_not_the_coordinators_is_found(tabs: Tabs, field: str) -> None:
    page = tabs.open("/dashboard")

    def forged(route: Any) -> None:
        answer = route.fetch()
        body = answer.json()
        value = body["budget"]["ledger"][field]
        other = "B" if value[20] == "A" else "A" if field == "signature" else "0" if value[20] == "1" else "1"
        body["budget"]["ledger"][field] = value[:20] + other + value[21:]
        route.fulfill(response=answer, body=json.dumps(body))

    page.route("**/dashboard/ward.json?*", forged)
    page.goto("/dashboard/ward")
    expected = "is not the coordinator's" if field == "signature" else "does not have the hash"
    assert expected in _check(page).inner_text()


@pytest.mark.slow
def test_a_browser_without_the_signature_says_so(tabs: Tabs) -> None:
    page = tabs.open("/dashboard")
    page.add_init_script(
        "crypto.subtle.importKey = async () => { throw new DOMException('none', 'NotSupportedError'); }"
    )
    page.goto("/dashboard/ward")
    assert "This browser cannot check Ed25519 signatures" in _check(page).inner_text()


@pytest.mark.slow
def test_the_certificate_is_taken_away_as_the_coordinator_signed_it(tabs: Tabs, here: Live, tmp_path: Path) -> None:
    page = tabs.open("/dashboard/ended")
    with page.expect_download() as taken:
        page.get_by_role("button", name="Download the certificate").click()
    assert taken.value.suggested_filename == "certificate-ended.json"
    taken.value.save_as(tmp_path / "certificate.json")
    found = json.loads((tmp_path / "certificate.json").read_text())
    # Each answer has its own time of issue, and signature.
    said = here.send("GET", "/v1/studies/ended/certificate", here.viewer_key).json()
    assert set(found) == set(said)
    assert found["certificate"]["limits"] == said["certificate"]["limits"]


@pytest.mark.slow
@pytest.mark.parametrize("honest", [True, False])
def test_the_result_is_taken_away_with_the_digest_that_the_certificate_names(
    tabs: Tabs, tmp_path: Path, honest: bool
) -> None:
    # The studies of these pages have rows of models without files.
    body = b"the mean of two models"
    digest = hashlib.sha256(body).hexdigest()
    named = {"sha256": digest if honest else "ab" * 32, "bytes": len(body), "rounds": [3, 4]}
    stated = json.dumps({"certificate": {"model": None, "result": named}})
    page = tabs.open("/dashboard/ward")
    page.route("**/models/result", lambda route: route.fulfill(body=body, headers={"ETag": f'"{digest}"'}))
    page.route("**/certificate", lambda route: route.fulfill(body=stated, content_type="application/json"))
    with page.expect_download() as taken:
        page.get_by_role("button", name="Download the result").click()
    assert taken.value.suggested_filename == "ward.safetensors"
    taken.value.save_as(path := tmp_path / "ward.safetensors")
    assert path.read_bytes() == body
    words = "Made of the models of 2 rounds, 3 to 4" if honest else "The certificate names another file"
    said = page.locator("#proof [role=status] p", has_text=words)
    said.wait_for()
    assert digest in said.inner_text()
