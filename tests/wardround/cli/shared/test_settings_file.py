"""Settings files: read, filled, changed and written."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import tomlkit

from client_sdk.errors import ConfigurationError
from study_protocol.study.any_settings import StatisticsSettings
from study_protocol.study.plan_of import plan_of
from study_protocol.study.settings import StudySettings
from tests.factories.settings import settings, statistics_settings
from wardround.cli.shared.settings_file import (
    changed_settings,
    filled,
    read_any_settings,
    read_settings,
    write_settings,
)

DOCS = Path(__file__).parents[4] / "docs"


def test_a_settings_file_without_neighbours_means_all_others(tmp_path: Path) -> None:
    example = (DOCS / "study.toml").read_text()
    path = tmp_path / "study.toml"
    path.write_text(example)
    everybody = read_settings(path).privacy.masking
    assert everybody is not None
    assert everybody.neighbours is None
    path.write_text(example.replace("colluders = 1", "colluders = 1\nneighbours = 8"))
    ring = read_settings(path).privacy.masking
    assert ring is not None
    assert ring.neighbours == 8


def test_a_file_in_toml_means_what_the_same_one_in_json_means(tmp_path: Path) -> None:
    """TOML has no null: entries that may be null are left out."""
    chosen = settings()
    values = chosen.as_json()
    (tmp_path / "study.json").write_text(json.dumps(values))
    (tmp_path / "study.toml").write_text(tomlkit.dumps(_without_null(values)))
    assert read_settings(tmp_path / "study.json") == chosen == read_settings(tmp_path / "study.toml")


def _without_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_null(inner) for name, inner in value.items() if inner is not None}
    return [_without_null(inner) for inner in value] if isinstance(value, list) else value


def test_a_study_of_queries_alone_is_read_as_any_and_not_as_one_that_trains(tmp_path: Path) -> None:
    path = tmp_path / "study.json"
    path.write_text(json.dumps(statistics_settings().as_json()))
    assert read_any_settings(path) == statistics_settings()
    with pytest.raises(ConfigurationError, match="which does not train"):
        read_settings(path)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.toml", b"", "is empty: `wardround study template -o FILE`"),
        ("a.json", b"{", "is no JSON"),
        ("a.toml", b"a = ", "is no TOML"),
        ("a.toml", b"[training]\ntask = 3\n", "is not a study:\n  training.task"),
        ("a.toml", b"[privacy]\nscheme = 2020-01-01\n", "privacy.scheme"),
        ("a.toml", b"[privacy]\nscheme = 2020-01-01T08:00:00\n", "a time of day stands in it"),
        ("a.toml", b"[privacy]\nscheme = 08:00:00\n", "a time of day stands in it"),
        ("a.toml", b"[monitoring]\ncolumn = ''\n", "monitoring.column: must not be empty"),
        ("a.toml", b"privacy = 3\n", "is not a study"),
        ("a.json", b"[1]", "is not a study"),
    ],
)
def test_what_is_no_study_is_named_with_every_wrong_entry(
    tmp_path: Path, name: str, content: bytes, words: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ConfigurationError) as error:
        read_any_settings(path)
    assert words in str(error.value)


@pytest.mark.parametrize("quoted", [True, False])
def test_the_settings_of_the_page_on_monitoring_are_read_with_a_date_or_its_text(tmp_path: Path, quoted: bool) -> None:
    page = (DOCS / "monitoring.md").read_text(encoding="utf-8")
    section = page.split("```toml\n")[1].split("```")[0]
    assert 'first_day = "2027-04-01"' in section
    path = tmp_path / "study.toml"
    section = section if quoted else section.replace('"2027-04-01"', "2027-04-01")
    path.write_text((DOCS / "study.toml").read_text(encoding="utf-8") + section, encoding="utf-8")
    monitoring = read_settings(path).monitoring
    assert monitoring is not None
    assert monitoring.first_day == date(2027, 4, 1)


def test_entries_that_are_left_out_are_null_in_the_privacy_section_alone() -> None:
    study = filled({"privacy": {"masking": {}}, "training": {}}, StudySettings)
    assert study["privacy"] == {
        "masking": {"neighbours": None},
        "bayesian": None,
        "client_clip_norm": None,
        "histogram_noise": None,
        "accounting_sample": None,
    }
    assert study["training"] == {}
    assert filled({"privacy": {}}, StatisticsSettings) == {"privacy": {"masking": None}}
    assert filled({"privacy": 3}, StudySettings) == {"privacy": 3}


def test_only_what_a_plan_changes_is_replaced() -> None:
    chosen = settings()
    plan = replace(plan_of(chosen), noise_multiplier=2.5, max_steps=7)
    changed, replaced = changed_settings(chosen, plan)
    assert replaced == {"privacy.noise_multiplier": 2.5, "privacy.max_steps": 7}
    assert plan_of(changed) == plan
    assert changed_settings(chosen, plan_of(chosen)) == (chosen, {})
    # Two levels of steps a round are no entry of the file.
    with pytest.raises(ConfigurationError, match="no study can have the numbers that were found"):
        changed_settings(chosen, replace(plan_of(chosen), steps_per_round=2, max_steps=4))


def test_comments_and_order_stay_in_a_written_file(tmp_path: Path) -> None:
    source, target = tmp_path / "study.toml", tmp_path / "other.toml"
    text = tomlkit.dumps(_without_null(settings().as_json()))
    source.write_text("# first\n" + text.replace("max_steps = 3", "max_steps = 3  # of the pilot"))
    changed, replaced = changed_settings(settings(), replace(plan_of(settings()), max_steps=9))
    write_settings(source, target, changed, replaced)
    assert target.read_text() == source.read_text().replace("max_steps = 3 ", "max_steps = 9 ")
    assert read_settings(target) == changed
    with pytest.raises(FileExistsError, match="exists already"):
        write_settings(source, target, changed, replaced)
    with pytest.raises(ConfigurationError, match="must be TOML"):
        write_settings(source, tmp_path / "a.json", changed, replaced)
    with pytest.raises(ConfigurationError, match="copy the lines by hand"):
        write_settings(source, tmp_path / "b.toml", settings(max_steps=5), replaced)
    assert not (tmp_path / "b.toml").exists()
