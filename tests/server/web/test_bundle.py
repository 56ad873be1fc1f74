"""The charts' library: compressed, named by its content, made once."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from server.web import bundle
from server.web.bundle import Bundle, find_bundle
from tests.factories.live_coordinator import Live


@pytest.fixture(scope="module")
def here(without_browser: Live) -> Live:
    return without_browser


def test_the_charts_library_may_be_kept_for_ever_and_is_sent_compressed(here: Live) -> None:
    found = find_bundle()
    if found is None:
        pytest.skip("vl-convert-python is not installed")
    address = f"/charts/{found.name}"
    assert f'data-charts="{address}"' in here.send("GET", "/dashboard/ward").text
    answer = here.send("GET", address)
    assert "immutable" in answer.headers["cache-control"]
    assert (answer.headers["content-encoding"], answer.content) == ("gzip", found.script)
    plain = here.send("GET", address, headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.content == found.script
    assert here.send("GET", "/charts/charts-0000000000000000.js").status_code == 404


def test_the_name_of_the_charts_library_goes_by_its_content() -> None:
    one, other = (Bundle(gzip.compress(text, mtime=0)) for text in (b"one", b"other"))
    assert one.name != other.name
    assert one.script == b"one"


def test_without_the_charts_library_the_coordinator_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle.importlib.util, "find_spec", lambda name: None)
    assert find_bundle(tmp_path / "charts.js.gz") is None


@pytest.mark.slow
def test_the_charts_library_is_made_once_and_the_same_each_time(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert", reason="vl-convert-python is not installed")
    first, second = find_bundle(tmp_path / "a" / "charts.js.gz"), find_bundle(tmp_path / "b" / "charts.js.gz")
    assert first == second
    assert first is not None
    assert b"window.vegaEmbed=" in first.script
    # What would break the content policy: code made from text.
    assert find_bundle(tmp_path / "a" / "charts.js.gz") == first
