"""The last answer of a regression at a terminal."""

from __future__ import annotations

import csv
import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from accounting.accountants.profile import mu_from_epsilon
from study_protocol.study.any_settings import AnySettings
from study_protocol.study.settings import StudySettings
from tests.factories.regressions import later_steps, regression
from tests.factories.settings import limit, settings, statistics_settings
from tests.factories.signed_answers import answered
from wardround.cli.lead.ask import hand_out
from wardround.cli.lead.regression_shown import cost_lines, is_result

STEPS = later_steps(regression())
LAST = answered(STEPS[-1], noise={"guaranteed": 4.0, "present": 4.5, "spacing": 2.0**-16})


def test_the_last_answer_is_one_row_for_each_term_with_ratio_and_intervals(capsys: pytest.CaptureFixture[str]) -> None:
    assert LAST.answered is not None
    hand_out(LAST, False, None, None)
    shown = capsys.readouterr().out
    tables = {table.name: table for table in LAST.answered.published.answer.tables}
    for head in ("coefficient", "std. error", "of it noise", "p", "95 % interval", "odds ratio"):
        assert head in shown
    for row in tables["coefficients"].rows:
        line = next(line for line in shown.splitlines() if f"│ {row[0]} " in line)
        cells = [cell.strip() for cell in line.strip("│ ").split("│")]
        coefficient, ratio = float(cells[1]), float(cells[6])
        assert coefficient == pytest.approx(row[1], rel=1e-3)
        assert ratio == pytest.approx(math.exp(coefficient), rel=1e-3)
        low, high = (float(end) for end in cells[5].split(" to "))
        assert low < coefficient < high
        assert [float(end) for end in cells[7].split(" to ")] == pytest.approx(
            [math.exp(low), math.exp(high)], rel=2e-3
        )
    assert re.search(r"patients with every value: \d+", shown)
    # The tables themselves stay as they are for programs.
    hand_out(LAST, False, None, "ratios")
    assert "odds ratios" in capsys.readouterr().out


def test_a_step_on_the_way_is_no_result_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    first = answered(STEPS[0])
    assert first.answered is not None
    assert not is_result(first.answered.published.answer)
    hand_out(first, False, None, None)
    assert "coefficient " not in capsys.readouterr().out


def test_every_table_is_exported(tmp_path: Path) -> None:
    hand_out(LAST, True, tmp_path / "fit.csv", None)
    with (tmp_path / "fit.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["term"] for row in rows] == ["age", "pressure", "intercept"]
    assert {"estimate", "low", "high", "std_error", "p_value"} <= rows[0].keys()
    assert (tmp_path / "fit-ratios.csv").exists()


def training(enforcement: str, **statistics: Any) -> StudySettings:
    limits = [limit("instance", epsilon=5.0, enforcement=enforcement)]
    return settings(
        limits=limits, sampling_rate=1.0, max_steps=3, statistics={"max_queries": 9, "max_cells": 100} | statistics
    )


@pytest.mark.parametrize(
    "settings",
    [statistics_settings(epsilon=5.0), training("gaussian-filter"), training("fixed-plan", share=0.4)],
    ids=["questions", "sum-of-squares", "fixed-plan"],
)
def test_the_cost_is_that_of_all_steps_without_any_training(settings: AnySettings) -> None:
    client: Any = SimpleNamespace(study=lambda _: SimpleNamespace(settings=settings))
    (line,) = cost_lines(client, LAST)
    found = re.fullmatch(r"its 3 steps together cost ε ([\d.]+) at δ 1e-05 \(instance classical\), if .*", line)
    assert found is not None, line
    # One Gaussian release with the noise of the whole question has this ε.
    assert mu_from_epsilon(float(found[1]), 1e-5) == pytest.approx(1 / 4.0, rel=5e-3)
