"""Which slots a study has: its own, or those that follow from the patients it plans."""

from __future__ import annotations

from typing import Any

import pytest

from study_protocol.study.any_settings import settings_from
from study_protocol.study.slots import default_slots, notes_on_slots, planned_patients, planned_slot, with_slots
from study_protocol.terms import in_words
from tests.factories.settings import settings


def planned(patients: float, **schedule: Any) -> Any:
    return settings(sampling_rate=0.5, expected_batch_size=patients / 2, schedule=schedule)


@pytest.mark.parametrize(
    ("patients", "slots"),
    [
        (40, (1.0, 2.0, 5.0, 10.0, 20.0, 50.0)),
        (1_000, (1.0, 2.0, 5.0, 10.0, 20.0, 50.0)),
        (1_001, (2.0, 5.0, 10.0, 20.0, 50.0)),
        (49_000, (50.0,)),
        # None that fits is long enough: the longest one.
        (1e6, (50.0,)),
    ],
)
def test_a_second_for_each_thousand_planned_patients(patients: float, slots: tuple[float, ...]) -> None:
    chosen = planned(patients, round_deadline_seconds=60.0)
    assert (planned_patients(chosen), default_slots(chosen)) == (patients, slots)
    assert planned_slot(with_slots(chosen)) == slots[0]


def test_a_short_round_has_a_slot_all_the_same() -> None:
    assert default_slots(planned(40, round_deadline_seconds=0.8)) == (0.4,)
    assert default_slots(planned(40, round_deadline_seconds=1e-3)) == ()


def test_only_an_empty_list_switches_slots_off() -> None:
    off = planned(40, slots=[])
    assert (with_slots(off), planned_slot(off)) == (off, None)
    said = dict(in_words(off, mine=True)[::-1])
    assert any("about how many patients you have" in line for _, line in in_words(off, mine=True)), said
    on = with_slots(planned(40))
    assert any("its slot, of 1 to 500 s" in line for _, line in in_words(on, mine=False))
    assert "about how many patients" in notes_on_slots(off, 3)[0]
    assert notes_on_slots(on, 30)[0].endswith("30 rounds wait 30 s at least")


def test_settings_of_earlier_versions_keep_their_digest() -> None:
    chosen = planned(40)
    assert "slots" not in chosen.as_json()["schedule"]
    assert "slots" not in chosen.model_dump_json()
    assert settings_from(with_slots(chosen).as_json()) == with_slots(chosen) != chosen
