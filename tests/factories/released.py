"""A released model's file without a study: weights drawn from a seed, and metadata as a coordinator writes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from private_learning.tasks import Task, load
from private_learning.training.weights import weights_of
from study_protocol.study.model_file import ModelMetadata
from study_protocol.wire.tensor_files import encode_model
from tests.factories.settings import settings

TABLE = {
    "label": "sick",
    "column.age": "18..90",
    "column.chol": "100..400; missing=240",
    "column.thal": "3|6|7; missing",
}
_INPUTS = {name: text for name, text in TABLE.items() if name != "label"}
_TIMES = {"time": "days", "event": "died", "cuts": "30|90"}
TASKS: dict[str, Mapping[str, Any]] = {
    "logistic-regression": TABLE,
    "bayesian-logistic-regression": {**TABLE, "prior-std": 2.5, "patients": 500},
    "additive": {
        **TABLE,
        "column.age": "18..90; increasing",
        "column.chol": "0..400; missing=240; typical=150..300; log",
    },
    "regression": {**TABLE, "low": 0.0, "high": 30.0},
    "multi-label": {**_INPUTS, "labels": "stroke|infarction|sepsis", "layers": 1, "hidden": 4},
    "discrete-survival": {**_INPUTS, **_TIMES},
    "piecewise-exponential": {**_INPUTS, **_TIMES, "proportional": False},
    "mlp": {
        **TABLE,
        "column.chol": "0..400; missing=240; typical=150..300; log",
        "column.thal": "3|6|7; missing; frequencies=55|5|40",
        "classes": 3,
        "hidden": 8,
    },
    "cnn": {"height": 9, "width": 8, "classes": 4, "filters": 2, "hidden": 5},
    "resnet": {"height": 9, "width": 8, "classes": 4, "filters": 4, "stages": 2, "groups": 2},
    "multi-label-images": {"height": 9, "width": 8, "labels": "a|b|c", "filters": 4, "stages": 2, "groups": 2},
    "segmentation": {"height": 9, "width": 10, "classes": 3, "filters": 4, "depth": 1, "groups": 2},
    "signal-cnn": {"channels": 2, "length": 40, "classes": 2, "range": "-1..1|0..9", "filters": 4, "groups": 2},
    "vae": {"height": 9, "width": 10, "classes": 3, "filters": 2, "latent": 4},
    "last-layer": {"features": 6, "classes": 2, "bound": 2.5},
}


def write_model(path: Path, name: str, parameters: Mapping[str, Any], task: Task | None = None, seed: int = 1) -> Path:
    """A model of round 3 with weights of any size, so that no two inputs are predicted alike."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = (task or load(name, parameters)).model()
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter)
    chosen = settings(training={"task": name, "task_parameters": dict(parameters)})
    said = ModelMetadata.of("sepsis", chosen, 3, (7, "ab" * 32))
    path.write_bytes(encode_model(weights_of(model), said.header()))
    return path
