"""The dashboard: pages that hold no data, twins that need a key, and a script that draws what the twin says."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

import server
from server.api.docs import CONTENT_SECURITY_POLICY, STATIC
from server.db.rows import find_study
from server.db.session import Transaction
from tests.factories.hospital_double import Hospital, update
from tests.factories.live_coordinator import Live, code_of, live

# Just enough of a document for the drawing: elements that remember their attributes and children.
NODE = """
globalThis.document = { createElement: make, createElementNS: (_, name) => make(name) };
function make(name) {
  const made = { name, attributes: {}, children: [] };
  made.setAttribute = (key, value) => { made.attributes[key] = String(value); };
  made.append = (...more) => { made.children.push(...more); };
  return made;
}
const drawing = await import(process.argv[1]);
let text = "";
for await (const piece of process.stdin) text += piece;
const { call, argument } = JSON.parse(text);
console.log(JSON.stringify(drawing[call](argument)));
"""


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live(tmp_path_factory.mktemp("home")) as coordinator:
        yield coordinator


@pytest.fixture(scope="module")
def hospitals(here: Live) -> list[Hospital]:
    """A study after one released round, measured."""
    both = here.running("ward", "north", "south")
    for who in both:
        assert here.put_update(who, 1, update()).status_code == 201
    here.work()
    for version, accuracy in ((0, 0.5), (1, 0.75)):
        metrics = {"evaluation_set": "held-out", "values": {"accuracy": accuracy}}
        assert here.operator("PUT", f"/v1/studies/ward/models/{version}/metrics", json=metrics).status_code == 201
    return both


@pytest.mark.parametrize("path", ["/dashboard", "/dashboard/ward", "/dashboard/nowhere"])
def test_a_page_holds_no_data_and_loads_nothing_from_elsewhere(
    here: Live, hospitals: list[Hospital], path: str
) -> None:
    page = here.send("GET", path)
    assert page.status_code == 200
    assert page.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert "ward" not in page.text.lower().replace("wardround", "")
    assert not re.search(r"<style|\sstyle=|\son\w+=|https?:", page.text)
    for address in re.findall(r'(?:src|href)="([^"]+)"', page.text):
        assert here.send("GET", address).status_code == 200


def test_the_scripts_talk_to_nobody_else() -> None:
    for script in STATIC.glob("*.js"):
        assert set(re.findall(r"https?://[^\"' ]+", script.read_text())) <= {"http://www.w3.org/2000/svg"}
        assert "innerHTML" not in script.read_text()


def test_the_twin_needs_a_key(here: Live, hospitals: list[Hospital]) -> None:
    for path in ("/dashboard.json", "/dashboard/ward.json"):
        assert here.send("GET", path).status_code == 401
        assert here.send("GET", path, here.viewer_key).status_code == 200
    assert here.signed(hospitals[0], "GET", "/dashboard/ward.json").status_code == 200
    assert here.signed(hospitals[0], "GET", "/dashboard.json").status_code == 403


def test_the_twin_says_what_the_api_says_and_not_who_took_part(here: Live, hospitals: list[Hospital]) -> None:
    page = here.operator("GET", "/dashboard/ward.json").json()
    assert page["study"] == here.operator("GET", "/v1/studies/ward").json()
    assert page["budget"] == here.operator("GET", "/v1/studies/ward/budget").json()
    assert [one["round"] for one in page["rounds"]] == [1, 2]
    assert all(one["clients"] is None for one in page["rounds"])
    listed = here.operator("GET", "/dashboard.json").json()
    assert listed == here.operator("GET", "/v1/studies").json()


def _drawn(call: str, argument: Any) -> Any:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    command = [node, "--input-type=module", "-e", NODE, str(STATIC / "drawing.js")]
    run = subprocess.run(
        command, input=json.dumps({"call": call, "argument": argument}), capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def _words(drawn: Any) -> str:
    if isinstance(drawn, str):
        return drawn
    parts = drawn if isinstance(drawn, list) else drawn["children"]
    return " ".join(_words(part) for part in parts)


def test_the_drawing_shows_every_limit_with_its_sentence(here: Live, hospitals: list[Hospital]) -> None:
    page = here.operator("GET", "/dashboard/ward.json").json()
    words = _words(_drawn("drawStudy", page))
    for limit in page["budget"]["limits"]:
        assert f"{limit['level']} level, {limit['definition']}" in words
        if limit["state"] == "unbounded":
            assert "does not protect this level" in words
        else:
            assert limit["certificate"]["assumption"] in words
            assert f"limit {limit['epsilon']:g} " in words
    assert page["budget"]["ledger"]["head"] in words


def test_what_was_spent_is_shown_for_every_round(here: Live, hospitals: list[Hospital]) -> None:
    page = here.operator("GET", "/dashboard/ward.json").json()
    reported, running = page["rounds"]
    limits = [one for one in page["budget"]["limits"] if one["epsilon"] is not None]
    assert [(one["level"], one["definition"], one["spent"]) for one in reported["spent"]] == [
        (one["level"], one["definition"], one["spent"]) for one in limits
    ]
    assert running["spent"] is None
    later = reported | {"round": 2, "spent": [one | {"spent": 2 * one["spent"]} for one in reported["spent"]]}
    words = _words(_drawn("drawStudy", page | {"rounds": [reported, later]}))
    for one in reported["spent"]:
        in_words = f"{one['level']}, {one['definition']}: {_drawn('upward', one['spent'])} in round 1"
        assert f"{in_words}, {_drawn('upward', 2 * one['spent'])} in round 2" in words


def test_a_database_that_differs_is_said_in_words_and_without_its_numbers(here: Live) -> None:
    here.running("forged", "east", "west")
    before = here.operator("GET", "/dashboard/forged.json").json()
    assert "Somebody changed the database" not in _words(_drawn("drawStudy", before))
    percentiles = '[{"population": 0.9, "epsilon": 0.123, "delta": "none"}]'

    def forge(tx: Transaction) -> None:
        study = find_study(tx, "forged").id
        tx.session.execute(
            text("UPDATE budgets SET percentiles = :p WHERE study_id = :s"), {"p": percentiles, "s": study}
        )

    here.coordinator.database.write("forge", forge)
    answer = here.operator("GET", "/v1/studies/forged/budget")
    assert code_of(answer) == (409, "study-finished")
    assert answer.json()["extra"] == {"stop_reason": "database-differs"}
    assert "the statement of its budget in the database is not what the signed ledger says" in answer.json()["detail"]
    page = here.operator("GET", "/dashboard/forged.json").json()
    assert (page["study"]["stop_reason"], page["budget"], page["rounds"]) == ("database-differs", None, [])
    words = _words(_drawn("drawStudy", page))
    assert "Somebody changed the database without the coordinator's key" in words
    assert "finished: database-differs" in words
    assert "Privacy budget" not in words


def test_markup_in_a_title_stays_text(here: Live, hospitals: list[Hospital]) -> None:
    page = here.operator("GET", "/dashboard/ward.json").json()
    page["study"]["title"] = "<script>alert(1)</script>"
    drawn = _drawn("drawStudy", page)
    headings = [each["children"] for each in drawn if each["name"] == "h1"]
    assert headings == [["<script>alert(1)</script>"]]


@pytest.mark.parametrize(
    ("value", "shown"),
    [(2.951, "2.96"), (2.95, "2.95"), (0.0123, "0.013"), (0, "0"), (None, "–"), (0.000011, "0.000011")],
    ids=["rounded up", "exact", "small", "nothing", "unknown", "tiny"],
)
def test_a_privacy_loss_is_never_shown_smaller_than_it_is(value: float | None, shown: str) -> None:
    assert _drawn("upward", value) == shown


def test_the_list_links_to_every_study(here: Live, hospitals: list[Hospital]) -> None:
    drawn = _drawn("drawStudies", here.operator("GET", "/dashboard.json").json())
    assert '"/dashboard/ward"' in json.dumps(drawn)


def test_the_pages_travel_with_the_package() -> None:
    package = Path(server.__file__).parent
    assert all((package / "web" / name).is_file() for name in ("study.html", "studies.html", "static/dashboard.css"))
