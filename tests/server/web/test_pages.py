"""The dashboard's pages hold no data, and its words know every reason."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args

import pytest

import server
from accounting.units import Observer
from server.api.docs import CONTENT_SECURITY_POLICY, STATIC
from server.domain.release import NotFinite, OutOfBounds
from server.domain.secure_sum_session import Failure
from study_protocol.study.messages import RoundState, StopReason, StudyState
from study_protocol.study.reasons import ENDINGS, FOR_GOOD, REASONS, SAME_MODEL_AGAIN, SUM_OF_THREE, TOO_FEW_DRAWN
from tests.factories.live_coordinator import Live

SOURCES = Path(server.__file__).parent


@pytest.fixture(scope="module")
def here(without_browser: Live) -> Live:
    return without_browser


@pytest.mark.parametrize("path", ["/dashboard", "/dashboard/ward", "/dashboard/nowhere"])
def test_a_page_holds_no_data_and_loads_nothing_from_elsewhere(here: Live, path: str) -> None:
    page = here.send("GET", path)
    assert page.status_code == 200
    assert page.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert "ward" not in page.text.lower().replace("wardround", "")
    assert not re.search(r"<style|\sstyle=|\son\w+=|https?:", page.text)
    for address in re.findall(r'(?:src|href|data-charts)="(/[^"]+)"', page.text):
        answer = here.send("GET", address)
        assert answer.status_code == 200
        assert answer.headers.get("x-content-type-options") == "nosniff" or not address.startswith("/static")


def test_the_scripts_talk_to_nobody_else_and_write_no_markup() -> None:
    for script in STATIC.glob("*.js"):
        text = script.read_text()
        assert not re.findall(r"https?://", text)
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|setAttribute\(.style", text
        )
        assert len(text.splitlines()) <= 400


def test_every_reason_of_a_coordinator_has_its_words() -> None:
    written = {reason for path in SOURCES.rglob("*.py") for reason in _reasons(path.read_text())}
    assert {"too-few-clients", "not-finite", "updates-lost", "noised-sum-lost", "query-opened"} <= written
    assert written | {*get_args(Failure), SAME_MODEL_AGAIN, SUM_OF_THREE, TOO_FEW_DRAWN, *FOR_GOOD} <= set(REASONS)
    assert set(ENDINGS) == {*get_args(StopReason)}
    known = (STATIC / "words.js").read_text()
    names = *(set(get_args(StudyState)) - {"finished"}), *get_args(RoundState), *(one.value for one in Observer)
    for word in names:
        assert re.search(rf'\W("{word}"|{word}): ', known), f"{word} has no words"


def _reasons(text: str) -> set[str]:
    given = re.findall(r'(?:Abandon|InputsLost)\([^"\n]*"([a-z-]+)"', text) + re.findall(
        r'"([a-z-]+-lost|not-finite)"', text
    )
    failed = "".join(re.findall(r'(?:query\.state, query\.reason = "failed", |fail\(tx, study, query, )(.*)', text))
    return {*given, *re.findall(r'"([a-z-]+)"', failed)} | {kind.reason for kind in (NotFinite, OutOfBounds)}


@pytest.mark.slow_cases("accuracy.json")
@pytest.mark.parametrize("path", sorted((STATIC / "charts").glob("*.json")), ids=lambda path: path.name)
def test_every_specification_is_a_chart_for_paper_too(path: Path) -> None:
    converter = pytest.importorskip("vl_convert", reason="vl-convert-python is not installed")
    rows = [
        {"round": number, "value": 1.0, "limit": "a", "kind": "answered", "count": 1, "order": 0}
        | {"x": number, "y": 1.0, "low": 0.5, "high": 1.5, "by": "a", "words": "one"}
        for number in (1, 2)
    ]
    names = set(re.findall(r'"data": \{"name": "(\w+)"\}', path.read_text()))
    drawn = json.loads(path.read_text()) | {"width": 300, "datasets": dict.fromkeys(names, rows)}
    assert converter.vegalite_to_svg(drawn).startswith("<svg")


def test_the_pages_travel_with_the_package() -> None:
    wanted = ("study.html", "studies.html", "static/dashboard.css", "static/charts/loss.json")
    assert all((SOURCES / "web" / name).is_file() for name in wanted)
