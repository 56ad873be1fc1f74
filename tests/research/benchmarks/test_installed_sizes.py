"""The page on installation says what was measured."""

from __future__ import annotations

import json
import re
from pathlib import Path

from research.benchmarks.installed_sizes import RESULTS, size_of

PAGE = Path(__file__).parents[3] / "docs" / "installation.md"
ROW = re.compile(r"^\| `?(\w+)`? \| ([\d,]+) \| (\d+) \|", re.M)


def test_the_table_is_the_record() -> None:
    found = {extra: (int(size.replace(",", "")), int(count)) for extra, size, count in ROW.findall(PAGE.read_text())}
    measured = json.loads(RESULTS.read_text())["extras"]
    recorded = {extra: (round(one["bytes"] / 1e6), one["packages"]) for extra, one in measured.items()}
    assert len(found) >= 9
    assert found == {extra: recorded[extra] for extra in found}


def test_the_page_s_words_are_the_record_s() -> None:
    extras = json.loads(RESULTS.read_text())["extras"]
    assert extras["client"]["torch"].endswith("+cpu")
    assert f"about {extras['client']['bytes'] / 1e9:.1f} GB" in PAGE.read_text()
    assert [name for name in ("none", "operator", "server") if extras[name]["torch"] is not None] == []


def test_files_are_counted_and_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "one").write_bytes(b"x" * 1000)
    (tmp_path / "two").write_bytes(b"x" * 10)
    assert size_of(tmp_path) == 1010
