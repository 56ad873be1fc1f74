"""The settings of docs/cohorts.md are valid."""

import re
import tomllib
from pathlib import Path

from study_protocol.study.cohort import Cohort

PAGE = Path(__file__).parents[2] / "docs" / "cohorts.md"


def test_the_example_is_a_cohort() -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.S)
    cohort = Cohort.model_validate(tomllib.loads(block)["cohort"])
    assert set(cohort.columns) == {"age", "sex", "diabetes", "glucose", "died"}
    assert set(cohort.events) == {"diagnoses"}
