"""The search is repeatable, keeps what a line promises about records, and takes the best of its finalists."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from research.tables import choose
from research.tables.federated import FederatedSettings
from research.tables.lines import CHOSEN_SETTINGS, INSTANCE_DELTA, LINES, PNEUMONIA, Line, noise_for
from research.tables.readings import NoisedRelease, epsilon_of_records

BOTH = next(line for line in LINES if line.key == "IV/100/iid/2")
ALL = (*LINES, PNEUMONIA)


def test_candidates_are_different_and_the_same_again() -> None:
    found = choose.candidates(LINES[0], 40)
    assert len(set(found)) == 40
    assert found == choose.candidates(LINES[0], 40)
    assert found != choose.candidates(LINES[1], 40)


def test_where_records_are_protected_no_candidate_spends_more_on_one() -> None:
    for settings in choose.candidates(BOTH, 20):
        release = NoisedRelease(settings, noise_for(BOTH, settings.rounds), 600, 1, BOTH.delta, INSTANCE_DELTA)
        assert settings.record_clip is not None
        assert epsilon_of_records(release) <= 0.044


def test_the_best_finalist_over_all_seeds_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: Counter[FederatedSettings] = Counter()

    def judge(line: Line, settings: FederatedSettings, seed: int) -> float:
        asked[settings] += 1
        # The first seed is kind to long steps, the others to many rounds.
        return settings.learning_rate if seed == 1000 else 1000.0 * settings.rounds

    monkeypatch.setattr(choose, "judge", judge)
    found = choose.search(LINES[0])
    finalists = [settings for settings, times in asked.items() if times == 4]
    assert len(asked) == choose.CANDIDATES
    assert len(finalists) == choose.FINALISTS
    assert found["settings"]["rounds"] == max(each.rounds for each in finalists)


def test_every_line_that_was_searched_keeps_its_settings_in_the_ranges() -> None:
    known = json.loads((Path(__file__).parents[3] / CHOSEN_SETTINGS).read_text(encoding="utf-8"))
    assert set(known) <= {line.key for line in ALL}
    for line in (line for line in ALL if line.key in known):
        assert FederatedSettings(**known[line.key]["settings"]) in choose.candidates(line, choose.CANDIDATES)
