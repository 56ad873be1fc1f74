"""Settings of a study that trains, and of one of queries alone."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from pydantic import ValidationError

from study_protocol.study.any_settings import StatisticsSettings, require_training, settings_from, trains
from study_protocol.study.settings import StudySettings
from tests.factories.settings import MASKING, limit, settings_json, statistics_settings


def document(**sections: Any) -> dict[str, Any]:
    """A study of queries alone."""
    privacy = {"scheme": "statistics", "limits": [limit("instance")], "masking": dict(MASKING)}
    return {
        "statistics": {"max_queries": 5, "max_cells": 100},
        "privacy": privacy | sections.pop("privacy", {}),
        "schedule": {"min_clients": 4, "round_deadline_seconds": 60.0},
    } | sections


def test_the_scheme_alone_says_of_which_kind_settings_are() -> None:
    assert isinstance(settings_from(document()), StatisticsSettings)
    assert isinstance(settings_from(settings_json()), StudySettings)
    assert [trains(value) for value in (document(), settings_json(), {}, None, {"privacy": 3})] == [
        *(False, True, True, True, True),
    ]
    assert not trains(statistics_settings())


def test_the_digest_is_that_of_the_canonical_json() -> None:
    chosen = settings_from(document())
    text = json.dumps(chosen.as_json(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert chosen.digest() == hashlib.sha256(text.encode()).hexdigest()
    assert settings_from(json.loads(text)) == chosen


def test_a_study_of_queries_alone_has_no_rounds_of_training() -> None:
    chosen = settings_from(document())
    assert (chosen.rounds, chosen.evaluation) == (0, None)
    with pytest.raises(ValueError, match="no rounds of training"):
        require_training(chosen)
    training = settings_from(settings_json())
    assert require_training(training) is training


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"privacy": {"limits": [limit("instance", "bayesian")]}}, "limit"),
        ({"privacy": {"limits": []}}, "at least 1"),
        ({"privacy": {"noise_multiplier": 1.0}}, "Extra inputs"),
        ({"schedule": {"min_clients": 3, "round_deadline_seconds": 60.0}}, "at least min_survivors"),
        ({"statistics": {"max_queries": 5, "max_cells": 100, "allowance": 1.0}}, "belongs to a Bayesian limit"),
        ({"statistics": {"max_queries": 0, "max_cells": 100}}, "greater than or equal to 1"),
        ({"training": {}}, "Extra inputs"),
    ],
)
def test_what_no_study_of_queries_can_keep_is_refused(sections: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        settings_from(document(**sections))
