"""How a study trains: rates by round, trained parts, and what does not go together."""

from __future__ import annotations

import math
from typing import Any

import pytest
from pydantic import ValidationError

from study_protocol.study.training import LONGEST_PARAMETERS, LearningRateSchedule, Training, rank_of

PLAIN: dict[str, Any] = {"task": "logistic-regression", "algorithm": "fedavg", "local_steps": 2}


def test_a_constant_rate_is_the_same_in_every_round() -> None:
    assert [LearningRateSchedule().share(number, 5) for number in (1, 5, 9)] == [1, 1, 1]


def test_a_step_falls_after_every_so_many_rounds() -> None:
    halved = LearningRateSchedule(name="step", every=3, factor=0.5)
    assert [halved.share(number, 8) for number in range(1, 9)] == [1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25]


def test_a_cosine_falls_from_all_towards_its_final_share_and_stays_there() -> None:
    """Of four rounds: cos 0, cos 45°, cos 90°, cos 135°."""
    half = LearningRateSchedule(name="cosine", final=0.2)
    root = math.sqrt(0.5)
    wanted = [0.2 + 0.8 * (1 + cosine) / 2 for cosine in (1, root, 0, -root)]
    assert [half.share(number, 4) for number in range(1, 5)] == pytest.approx(wanted)
    # Failed rounds push later ones past the last.
    assert half.share(9, 4) == half.share(4, 4)


def test_a_rank_is_named_behind_lora_alone() -> None:
    assert [rank_of(part) for part in ("lora:1", "lora:9999", "all", "lora:", "lora:0", "lora:10000")] == [
        *(1, 9999, None, None, None, None),
    ]
    assert rank_of(("lora:8",)) is None


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"trainable": "tail"}, "say all, head, lora:R"),
        *(({"algorithm": name}, "records that no clip bounds") for name in ("fedbn", "FedPer", "ditto", "FedRep")),
        *(({"trainable": name}, "wardround adapt") for name in ("Ditto", "fedbn", "personal")),
        ({"algorithm": "FedProx"}, "fedavg. with proximal"),
        ({"trainable": "lora:0"}, "rank R of 1 to 9999"),
        ({"trainable": []}, "trainable"),
        ({"trainable": "head", "augmentation": {"views": 4, "shift": 1}}, "leave augmentation out"),
        ({"algorithm": "fedsgd"}, "one gradient a round"),
        (
            {"algorithm": "fedsgd", "local_steps": 1, "learning_rate_schedule": {"name": "cosine"}},
            "takes no local step",
        ),
        ({"algorithm": "fedsgd", "local_steps": 1, "local_optimiser": {"name": "adam"}}, "takes no local step"),
        ({"algorithm": "fedsgd", "local_steps": 1, "proximal": 0.1}, "proximal needs fedavg with local_steps of 2"),
        ({"local_steps": 1, "proximal": 0.1}, "the term is zero"),
        ({"learning_rate": 2.0, "proximal": 0.6}, "learning_rate × proximal must be at most 1"),
        ({"proximal": -0.1}, "greater than or equal to 0"),
        ({"rows_per_patient": 0}, "greater than or equal to 1"),
        ({"backbone": {"sha256": "AB" * 32}}, "sha256"),
        ({"task_parameters": {"a": "x" * LONGEST_PARAMETERS}}, "at most"),
        ({"task_parameters": {"a": math.nan}}, "finite"),
    ],
)
def test_what_does_not_go_together_is_refused(entries: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Training.model_validate(PLAIN | entries)


def test_settings_that_were_added_later_are_left_out_where_they_say_nothing() -> None:
    """So that studies of earlier versions keep their digest."""
    written = Training.model_validate(PLAIN).model_dump(mode="json")
    assert not {"trainable", "backbone", "augmentation", "proximal"} & set(written)
    assert "averaging" not in written["optimiser"]
    part = Training.model_validate(PLAIN | {"trainable": "head", "backbone": {"sha256": "ab" * 32}})
    assert {"trainable", "backbone"} <= set(part.model_dump(mode="json"))


def test_only_a_file_of_task_features_is_a_program() -> None:
    file = {"backbone": {"sha256": "ab" * 32}}
    assert Training.model_validate(PLAIN | file).program_sha256 is None
    assert Training.model_validate(PLAIN | file | {"task": "features"}).program_sha256 == "ab" * 32
    assert Training.model_validate(PLAIN | {"task": "features"}).program_sha256 is None
