"""Clipping around what the last round made of the model: released, so the sensitivity stays the clip norm."""

import logging
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from pydantic import ValidationError

from client_sdk.errors import TrainingStopped
from client_sdk.guard.individual import IndividualBudget
from client_sdk.guard.log_moments import LogMomentBounds
from client_sdk.guard.policy_limits import IndividualLimit
from private_learning.tasks import TaskDataset, load
from private_learning.training import LocalTraining
from private_learning.training.gradients import PrivateGradients, released_centre
from private_learning.training.weights import weights_of
from study_protocol.randomness.source import SeededRandomness
from study_protocol.study.settings import StudySettings
from study_protocol.wire.tensors import Array, decode, spec_of
from tests.factories.hospitals import coordinator, hospital, plain_policy, records
from tests.factories.settings import TASK_PARAMETERS, settings
from tests.factories.wire_answers import problem

SILENT = 1e-7
AROUND = {"clipping_centre": "previous-update", "optimiser": {"name": "plain", "learning_rate": 2.0}}
TASK = load("logistic-regression", TASK_PARAMETERS)
DATA = TASK.dataset(records(30))
HERE: dict[str, Array] = {"weight": np.array([[0.3, -0.2]], np.float32), "bias": np.array([0.1], np.float32)}
BEFORE: dict[str, Array] = {"weight": np.array([[0.5, 0.1]], np.float32), "bias": np.array([-0.1], np.float32)}
# (before − here) / 2, the coordinator having stepped against the mean gradient with rate 2; bias first.
CENTRE = np.array([-0.1, 0.1, 0.15])


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)


def study(**privacy: Any) -> StudySettings:
    chosen = {"sampling_rate": 1.0, "noise_multiplier": SILENT, "clip_norm": 0.4, "expected_batch_size": 30.0} | privacy
    training = {"task": "logistic-regression", **AROUND} | chosen.pop("training", {})
    return settings(training=training, **chosen)


def test_the_prior_s_part_of_the_last_step_is_no_record_s_gradient() -> None:
    given = TASK_PARAMETERS | {"prior-std": 0.5, "patients": 20}
    found = released_centre(study(training={"task_parameters": given}), HERE, BEFORE)
    assert found is not None
    # Of the last step's whole direction the prior's was BEFORE / (0.25 · 20).
    centre = torch.cat([found["bias"].ravel(), found["weight"].ravel()]).numpy()
    np.testing.assert_allclose(centre, CENTRE - np.array([-0.1, 0.5, 0.1]) / 5, atol=1e-7)


def each_gradient(rows: TaskDataset = DATA) -> np.ndarray:
    """(records, 3) gradients at HERE, bias first, in numpy."""
    x = np.column_stack([np.ones(len(rows)), rows.inputs.numpy().astype(np.float64)])
    point = np.array([0.1, 0.3, -0.2])
    return (1 / (1 + np.exp(-x @ point)) - rows.targets.numpy())[:, None] * x


def update(chosen: StudySettings, rows: TaskDataset = DATA, log_moments: LogMomentBounds | None = None) -> np.ndarray:
    local = LocalTraining(TASK, rows, chosen, SeededRandomness(1, allow_insecure=True))
    found = local.contribution(HERE, log_moments, previous=BEFORE).update
    return np.concatenate([found["bias"].ravel(), found["weight"].ravel()]).astype(np.float64)


def clipped(vectors: np.ndarray, bound: float) -> np.ndarray:
    return vectors * np.minimum(1.0, bound / np.linalg.norm(vectors, axis=1))[:, None]


def test_gradients_are_clipped_around_the_centre_which_is_added_again() -> None:
    apart = each_gradient() - CENTRE
    assert 0 < int((np.linalg.norm(apart, axis=1) > 0.7).sum()) < 30
    expected = clipped(apart, 0.7).sum(0) / 30.0 + CENTRE
    np.testing.assert_allclose(update(study(clip_norm=0.7)), expected, rtol=0, atol=30 * 0.7 * 2**-13 / 30)


def test_layers_are_clipped_apart_around_the_centre_too() -> None:
    torch.manual_seed(3)
    task = load("mlp", {"label": "ill", "column.age": "0..100", "column.rate": "0..10", "hidden": 5})
    model, rows = task.model().eval(), task.dataset(records(25))
    start, draw = weights_of(model), np.random.default_rng(2)
    shift = {name: draw.normal(0, 0.1, array.shape).astype(np.float32) for name, array in start.items()}
    chosen = study(training={"task": "mlp", "clipping": "per-layer"})
    local = LocalTraining(task, rows, chosen, SeededRandomness(1, allow_insecure=True))
    found = local.contribution(start, None, previous={n: start[n] + 2 * shift[n] for n in start}).update
    expected = {name: 30.0 * value.astype(np.float64) for name, value in shift.items()}
    for x, y in zip(rows.inputs, rows.targets, strict=True):
        model.zero_grad()
        task.loss(model(x[None]), y[None]).sum().backward()
        apart = {n: p.grad.numpy() - shift[n] for n, p in model.named_parameters() if p.grad is not None}
        for layer in (("0.weight", "0.bias"), ("2.weight", "2.bias")):
            norm = np.sqrt(sum(float((apart[n].astype(np.float64) ** 2).sum()) for n in layer))
            for n in layer:
                expected[n] += apart[n] * min(1.0, 0.4 / np.sqrt(2) / norm)
    for name, array in found.items():
        np.testing.assert_allclose(array, expected[name] / 30.0, rtol=0, atol=30 * 0.4 * 2**-12 / 30)


@pytest.mark.parametrize("centre", [1.0, 1e4])
def test_a_record_moves_the_sum_by_at_most_the_clip_norm_wherever_the_centre_lies(centre: float) -> None:
    # One radius for all of them: 30 records pull the same way.
    chosen = study(clip_norm=0.2, expected_batch_size=1.0, robustness={"sum_radius": 30.0})

    def around(rows: TaskDataset) -> np.ndarray:
        far = {name: HERE[name] + np.float32(2.0 * centre) for name in HERE}
        local = LocalTraining(TASK, rows, chosen, SeededRandomness(1, allow_insecure=True))
        found = local.contribution(HERE, None, previous=far).update
        return np.concatenate([found["bias"].ravel(), found["weight"].ravel()]).astype(np.float64)

    whole = around(DATA)
    for gone in range(6):
        moved = np.linalg.norm(whole - around(DATA.without([f"p{gone}"])))
        # Every distance is longer than the bound; the centre's own float32 digits are all that is lost.
        assert 0.2 * 0.99 - 1e-6 * centre < moved <= 0.2 + 3e-7 * centre


def test_what_is_accounted_is_the_distance_that_was_clipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of records that were not drawn, whose distances are computed for the log-moments alone."""
    seen: list[np.ndarray] = []
    measure = LogMomentBounds.measure

    def watched(self: LogMomentBounds, norms: np.ndarray, **more: Any) -> None:
        seen.append(norms)
        measure(self, norms, **more)

    monkeypatch.setattr(LogMomentBounds, "measure", watched)
    for rate in (1.0, 0.3):
        chosen = study(bayesian=True, noise_multiplier=1.0, sampling_rate=rate)
        update(chosen, log_moments=LogMomentBounds(chosen, DATA.patients))
        np.testing.assert_allclose(seen.pop(), np.linalg.norm(each_gradient() - CENTRE, axis=1), rtol=1e-3)


def test_patients_of_several_rows_are_clipped_around_it_as_one() -> None:
    rows = TaskDataset(DATA.inputs, DATA.targets, tuple(f"p{i // 2}" for i in range(30))).by_patient(2)
    each = each_gradient().reshape(15, 2, 3).mean(1)
    expected = clipped(each - CENTRE, 0.4).sum(0) / 30.0 + CENTRE
    np.testing.assert_allclose(update(study(), rows), expected, rtol=0, atol=15 * 0.4 * 2**-13 / 30)


def test_the_first_round_has_nothing_to_go_by() -> None:
    local = LocalTraining(TASK, DATA, study(), SeededRandomness(1, allow_insecure=True))
    found = local.contribution(HERE, None, previous=None).update
    expected = clipped(each_gradient(), 0.4).sum(0) / 30.0
    np.testing.assert_allclose(found["bias"], expected[:1], atol=1e-4)


def test_a_hospital_takes_the_centre_from_the_two_last_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = settings(training=AROUND, sampling_rate=1.0)
    other, centres, asked = coordinator(chosen), [], []
    begin = PrivateGradients.__init__

    def watched(self: PrivateGradients, *given: Any, **more: Any) -> None:
        centres.append(more["centre"])
        begin(self, *given, **more)

    def meddle(request: httpx.Request) -> httpx.Response | None:
        if "/models/" in request.url.path:
            asked.append(int(request.url.path.rsplit("/", 1)[1]))
        return None

    monkeypatch.setattr(PrivateGradients, "__init__", watched)
    other.meddle = meddle
    hospital(other, tmp_path).join("sepsis", None, records(), policy=plain_policy(), dataset="icu")
    assert asked == [0, 1, 0, 2, 1]
    assert centres[0] is None
    models = [decode(other.models[version], spec_of(other.initial)) for version in range(3)]
    for centre, before, after in zip(centres[1:], models[:-1], models[1:], strict=True):
        for name in before:
            np.testing.assert_allclose(centre[name].numpy(), (before[name] - after[name]) / 2.0, rtol=1e-5, atol=1e-7)


def test_a_round_that_came_to_nothing_leaves_no_centre(tmp_path: Path) -> None:
    other = coordinator(settings(training=AROUND, sampling_rate=1.0))
    taken: list[str] = []

    def meddle(request: httpx.Request) -> httpx.Response | None:
        taken.append(request.url.path)
        if request.url.path.endswith("/models/0") and any("rounds/1/updates" in path for path in taken):
            return problem(404, "unknown-model")
        return None

    other.meddle = meddle
    joined = hospital(other, tmp_path).join("sepsis", None, records(), policy=plain_policy(), dataset="icu")
    assert joined.rounds_sent == 3


def test_a_centre_that_is_not_finite_stops_the_step() -> None:
    far = {name: np.full_like(array, -3e38) for name, array in HERE.items()}
    chosen = study(training={"optimiser": {"name": "plain", "learning_rate": 0.1}})
    local = LocalTraining(TASK, DATA, chosen, SeededRandomness(1, allow_insecure=True))
    with pytest.raises(TrainingStopped, match="centre"):
        local.contribution(HERE, None, previous=far)


CLIENT = {
    "scheme": "client",
    "limits": [{"level": "client", "definition": "classical", "epsilon": 50.0, "delta": 1e-5}],
}


@pytest.mark.parametrize(
    ("training", "privacy", "message"),
    [
        ({"algorithm": "fedavg"}, {}, "needs fedsgd"),
        ({"optimiser": {"name": "momentum"}}, {}, "plain optimiser"),
        ({}, CLIENT, "scheme parallel"),
    ],
)
def test_where_there_is_no_gradient_to_compare_it_is_refused(
    training: dict[str, Any], privacy: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        settings(training=AROUND | training, **privacy)


def test_agreement_makes_steps_cheaper() -> None:
    """Records that all say nearly the same: around the centre they lie closer than to zero, and are charged less."""
    task = load("last-layer", {"features": 2, "classes": 2, "bound": 4.0})
    x = torch.tensor([[2.0, 1.0]]).repeat(20, 1) + 0.1 * torch.randn(20, 2, generator=torch.Generator().manual_seed(1))
    rows = TaskDataset(x, torch.ones(20, dtype=torch.int64), tuple(map(str, range(20))))
    start = weights_of(task.model())
    chosen = study(noise_multiplier=1.0, clip_norm=2.0, expected_batch_size=20.0)
    gradient = {"weight": np.array([[-1.0, -0.5]], np.float32), "bias": np.array([-0.5], np.float32)}
    previous = {name: (start[name] + 2.0 * gradient[name]).astype(np.float32) for name in start}
    limit, costs = IndividualLimit(epsilon=50.0, delta=1e-5, order=4.0), []
    for before in (None, previous):
        own = IndividualBudget.open(limit, None, rows.patients, entries=0, sent_since=lambda _: [])
        local = LocalTraining(task, rows, chosen, SeededRandomness(1, allow_insecure=True))
        local.contribution(start, None, previous=before, individual=own)
        costs.append(max(own.filter.state()["spent"]))
    assert 0 < costs[1] < 0.05 * costs[0]
