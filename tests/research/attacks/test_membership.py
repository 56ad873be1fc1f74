"""The study of the membership table: its ε and rounds are those that the table names."""

from __future__ import annotations

import pytest

from research.attacks import membership
from wardround.demo.scenarios import data_folder

pytestmark = pytest.mark.skipif(
    not (data_folder() / "heart_disease_4_hospitals").is_dir(), reason="needs the heart-disease files"
)


def test_the_study_ends_at_its_epsilon_after_thirty_rounds() -> None:
    chosen = membership.study(membership.scenario(0), 1.0)
    (limit,) = chosen.privacy.limits
    assert (limit.epsilon, limit.delta) == (1.0, 1e-5)
    assert chosen.training.task == "mlp"
    assert chosen.training.task_parameters["hidden"] == 32
