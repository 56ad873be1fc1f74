"""Example parameters of every built-in task, for templates, documents and tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_COLUMNS = {"column.age": "18..90", "column.chol": "100..400; missing=240", "column.pain": "1|2|3|4"}

# Task -> task_parameters.
EXAMPLES: Mapping[str, Mapping[str, Any]] = {
    "logistic-regression": {"label": "ill", "classes": 2, **_COLUMNS},
    "bayesian-logistic-regression": {
        "label": "ill",
        "label-values": "no|yes",
        "patients": 2400,
        "prior-std": 2.5,
        **_COLUMNS,
    },
    "mlp": {
        "label": "triage",
        "classes": 3,
        "hidden": 8,
        "column.age": "0..110",
        "column.pulse": "20..220; missing=80; missing-values=0",
        "column.ward": "medical|surgical; missing",
    },
    "regression": {
        "label": "los",
        "low": 0,
        "high": 30,
        "loss": "huber",
        "delta": 5,
        **_COLUMNS,
    },
    "multi-label": {"labels": "stroke|infarction|sepsis", **_COLUMNS},
    "discrete-survival": {"time": "days", "event": "died", "cuts": "30|90|180|365", **_COLUMNS},
    "piecewise-exponential": {"time": "days", "event": "died", "cuts": "30|90|180|365", **_COLUMNS},
    "sequence": {
        "label": "died",
        "label-values": "no|yes",
        "length": 50,
        "events.diagnoses": "code=icd; time=day; codes=I10|E11|N18|J44",
        "events.drugs": "code=atc; time=day; codes=C07|A10|B01",
        "column.age": "18..90",
        "column.sex": "f|m",
    },
    "cnn": {"height": 28, "width": 28, "classes": 2, "filters": 8},
    "resnet": {"height": 28, "width": 28, "classes": 2, "filters": 8, "stages": 2},
    "multi-label-images": {"height": 28, "width": 28, "labels": "effusion|nodule|edema", "filters": 8, "stages": 2},
    "segmentation": {"height": 32, "width": 32, "classes": 2, "mask-values": "0|255", "filters": 8, "dice": 1.0},
    "signal-cnn": {"channels": 2, "length": 250, "classes": 2, "range": "-2..2", "filters": 8, "layers": 3},
    "last-layer": {"features": 512, "classes": 4, "bound": 1.0},
    "features": {
        "module": "oriented-gradients",
        "shape": "1x28x28",
        "features": 392,
        "classes": 2,
        "bound": 1.0,
    },
}
