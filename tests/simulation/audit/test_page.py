"""The page: what it says follows from its figures, its digest is that of the file, and no text becomes markup."""

from __future__ import annotations

import hashlib
import json
import re

from simulation.audit.page import AuditReport, AuditSection, bars


def _report(*alarms: str) -> AuditReport:
    section = AuditSection("one", "A <b> part", {"value": 0.5}, ["text & more"], ("head",), [["<cell>"]], alarms=alarms)
    return AuditReport("ab" * 32, {"hospitals": 4}, [section])


def test_the_json_names_the_digest_of_the_page_and_holds_its_figures() -> None:
    files = _report("late").files()
    found = json.loads(files["audit.json"])
    assert found["page_sha256"] == hashlib.sha256(files["audit.html"]).hexdigest() == _report("late").page_sha256
    assert (found["one"], found["alarms"], found["settings_sha256"]) == ({"value": 0.5}, ["late"], "ab" * 32)
    (inside,) = re.findall(r'id="figures">(.*?)</script>', files["audit.html"].decode())
    assert json.loads(inside) == {name: value for name, value in found.items() if name != "page_sha256"}


def test_text_is_no_markup_and_nothing_is_loaded_from_elsewhere() -> None:
    page = _report().page()
    assert "A &lt;b&gt; part" in page
    assert "&lt;cell&gt;" in page
    assert "No alarm." in page
    assert not re.search(r"(src|href)=", page)


def test_the_longest_bar_has_the_largest_value() -> None:
    widths = [
        float(width) for width in re.findall(r'<rect [^>]* width="([\d.]+)"', bars({"a": 1.0, "b": 2.0}, unit="ε"))
    ]
    assert widths[1] == 2 * widths[0] > 0
    assert 'width="0.0"' in bars({"a": 0.0}, unit="ε")
