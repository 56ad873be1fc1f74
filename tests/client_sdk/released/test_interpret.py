"""The JSON for InterpretML against an evaluator of its own, written from the format's rules."""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from pathlib import Path
from typing import Any

import numpy as np

from client_sdk.released import load_model
from client_sdk.released.curves import curves_of
from client_sdk.released.interpret import to_interpret
from tests.client_sdk.released.test_curves import TASK, records
from tests.factories.released import TASKS, write_model


def place(feature: dict[str, Any], value: Any) -> int:
    """The first place of a term's scores is of missing values, the last of unknown ones."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return 0
    if feature["type"] == "nominal":
        return 1 + feature["categories"][0].index(value)
    return 1 + bisect_right(feature["cuts"][0], value)


def test_scores_and_intercept_give_the_model_s_probabilities(tmp_path: Path) -> None:
    model = load_model(write_model(tmp_path / "m", TASK, TASKS[TASK]))
    document = json.loads(to_interpret(curves_of(model)))
    ebm, table = document["ebm"], records()
    assert document["version"] == "1.0"
    assert ebm["outputs"][0]["link"] == "logit"
    expected = model(table)[:, 1]
    found = [
        ebm["intercept"][0]
        + sum(
            term["scores"][place(feature, table[feature["name"]][at])]
            for feature, term in zip(ebm["features"], ebm["terms"], strict=True)
        )
        for at in range(300)
    ]
    np.testing.assert_allclose(1 / (1 + np.exp(-np.array(found))), expected, atol=1e-6)
    for feature, term in zip(ebm["features"], ebm["terms"], strict=True):
        count = len(feature["categories"][0]) if feature["type"] == "nominal" else len(feature["cuts"][0]) + 1
        assert len(term["scores"]) == len(term["bin_weights"]) == len(term["standard_deviations"]) == count + 2
        assert term["bagged_scores"] == [term["scores"]]
