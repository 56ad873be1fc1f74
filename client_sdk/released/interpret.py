"""An additive model in the JSON of InterpretML's boosting machines (interpret 0.7.8, format of `to_jsonable`)."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from client_sdk.released.curves import Curve, Curves

# The format's version in interpret 0.7.8.
VERSION = "1.0"


def to_interpret(curves: Curves) -> str:
    """Return the JSON that `ExplainableBoostingClassifier()._from_json(FILE)` reads.

    Half of a band's 1.96 deviations stands as `standard_deviations`. Numbers of patients are not released: bins count
    one each, so that interpret's mean importances are means over bins.
    """
    ebm: dict[str, Any] = {
        "outputs": [
            {"task": "classification", "classes": list(curves.words), "link": "logit", "link_param": "nan"},
        ],
        "intercept": [curves.intercept],
        "bag_weights": [1.0],
        "best_iteration": [[0]],
        "implementation": "python",
        "implementation_params": {} if curves.adapted is None else {"adapted": curves.adapted},
        "features": [_feature(curve) for curve in curves.curves],
        "terms": [_term(curve) for curve in curves.curves],
    }
    return json.dumps({"version": VERSION, "ebm": ebm}, indent=1, allow_nan=False) + "\n"


def _feature(curve: Curve) -> dict[str, Any]:
    if curve.categories:
        names = list(curve.categories)
        return {"name": curve.name, "type": "nominal", "num_unique_vals": len(names), "categories": [names]}
    bins = len(curve.values)
    return {
        "name": curve.name,
        "type": "continuous",
        "num_unique_vals": bins,
        "cuts": [list(curve.edges[1:-1])],
        "min": curve.edges[0],
        "max": curve.edges[-1],
        "histogram_weights": [0.0, *[1.0] * bins, 0.0],
    }


def _term(curve: Curve) -> dict[str, Any]:
    scores = _with_ends(curve, curve.values)
    # Its deviations are of one bin: 0 where no settings were given.
    deviations = np.zeros(len(curve.values)) if curve.half is None else curve.half / 1.959963984540054
    return {
        "term_features": [curve.name],
        "scores": scores,
        "standard_deviations": [0.0, *deviations.tolist(), 0.0],
        "bagged_scores": [scores],
        "bin_weights": [0.0, *[1.0] * len(curve.values), 0.0],
    }


def _with_ends(curve: Curve, values: Any) -> list[float]:
    """Return the values between that of a missing cell and that of an unknown one, which counts as missing."""
    missing = 0.0 if curve.missing is None else curve.missing
    return [missing, *values.tolist(), missing]
