"""docs/bayesian-models.md against the code: its settings are a task's, its program runs."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np

from private_learning.tasks import load
from study_protocol.study.prior import prior_of

PAGE = (Path(__file__).parents[2] / "docs" / "bayesian-models.md").read_text()


def test_the_settings_name_a_task_with_a_prior() -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", PAGE, re.S)
    training = tomllib.loads(example)["training"]
    model = load(training["task"], training["task_parameters"]).model()
    assert [name for name, _ in model.named_parameters()] == ["mean.weight", "spread.weight"]
    assert prior_of(training["task_parameters"]) is not None


def test_the_program_draws_and_predicts() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    seen: dict[str, Any] = {}
    exec(compile(example, "docs/bayesian-models.md", "exec"), seen)
    assert seen["weights"].shape == (4, 3)
    plan = seen["plan"]
    assert 0 < plan.guarantee(1e-5).epsilon < 2
    right = ((seen["chances"] > 0.5) == seen["labels"]).mean()
    # The noise of .6 in each of four draws leaves most of what weights of 3, −2 and .5 tell.
    assert right > 0.7
    assert np.isfinite(seen["chances"]).all()
