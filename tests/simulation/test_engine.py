"""The engine: going on after a kill, ends of studies, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from accounting.budget.forecast import forecast
from accounting.errors import AccountingError
from client_sdk.errors import ConfigurationError
from private_learning.gradients.layers import logistic
from private_learning.tasks import Task, TaskDataset, load
from private_learning.training import LocalTraining, weights_of
from simulation.backends.base import Backend, Loop
from simulation.backends.forked import Forked
from simulation.baselines import without_noise
from simulation.engine import Engine, RoundShown, SimulationOutcome
from simulation.local_work import LocalWork
from simulation.population import Population
from study_protocol.randomness.source import SeededRandomness
from study_protocol.study.plan_of import plan_of
from study_protocol.wire.signing import canonical_json
from tests.factories.hospitals import records
from tests.factories.settings import TASK_PARAMETERS, limit, settings

BAYESIAN = {"bayesian": True, "max_steps": 6}


def clients(count: int = 6) -> Population:
    task = load("logistic-regression", TASK_PARAMETERS)
    return Population.of({f"h{i}": task.dataset(records(40, seed=i)) for i in range(count)})


def held_out() -> Any:
    return load("logistic-regression", TASK_PARAMETERS).dataset(records(200, seed=99))


def forked(work: LocalWork) -> Backend:
    return Forked(work, 2)


def bytes_of(found: SimulationOutcome) -> tuple[Any, ...]:
    weights = [{n: array.tobytes() for n, array in sorted(of.items())} for of in (found.weights, found.result)]
    events = [[event.kind, event.round, dict(event.body)] for event in found.events]
    return weights, canonical_json(events), canonical_json(found.statements), found.rounds, found.stop_reason


class Stopped(Exception):
    pass


@pytest.mark.quick("client-adam")
@pytest.mark.parametrize(
    ("scheme", "options"),
    [
        ("joint", BAYESIAN),
        ("sequential", BAYESIAN | {"disclosure": "at-end"}),
        ("client", {"max_steps": 6, "client_sampling_rate": 0.6, "training": {"optimiser": {"name": "adam"}}}),
        ("parallel", {"max_steps": 6, "training": {"optimiser": {"averaging": {"name": "tail", "share": 0.4}}}}),
        ("parallel", {"max_steps": 6, "training": {"optimiser": {"averaging": {"name": "exponential"}}}}),
        ("parallel", BAYESIAN | {"training": {"algorithm": "fedavg", "local_steps": 2, "learning_rate": 0.2}}),
    ],
    ids=["joint", "sequential-at-end", "client-adam", "tail", "exponential", "parallel"],
)
def test_going_on_after_every_round_gives_the_same_bytes(scheme: str, options: dict[str, Any], tmp_path: Path) -> None:
    chosen = settings(scheme, expected_clients=6.0, **options)
    whole = Engine(chosen, clients(), 5, Loop, test=held_out()).run()
    kept = tmp_path / "kept"

    def stop(_: RoundShown) -> None:
        raise Stopped

    # Each attempt lives for one round, and a new engine knows nothing but the file.
    for _ in range(len(whole.rounds)):
        with pytest.raises(Stopped):
            Engine(chosen, clients(), 5, Loop, test=held_out(), kept=kept).run(stop)
    again = Engine(chosen, clients(), 5, Loop, test=held_out(), kept=kept).run(stop)
    assert bytes_of(again) == bytes_of(whole)


def test_the_result_is_the_mean_that_the_settings_name() -> None:
    averaging = {"name": "tail", "share": 0.5}
    chosen = settings(max_steps=4, training={"optimiser": {"averaging": averaging}})
    released = [Engine(settings(max_steps=4), clients(4), 1, Loop, test=held_out()).run()]
    models: list[Any] = []

    class Watched(Loop):
        def run(self, orders: Any, tasks: Any) -> Any:
            models.append(orders.weights)
            return super().run(orders, tasks)

    found = Engine(chosen, clients(4), 1, Watched, test=held_out()).run()
    # Rounds train on from what was released, whatever the result is.
    assert all(np.array_equal(found.weights[name], released[0].weights[name]) for name in found.weights)
    for name, mean in found.result.items():
        np.testing.assert_allclose(mean, (models[3][name].astype(float) + found.weights[name]) / 2, rtol=1e-6)
    assert found.rounds[-1].metrics != released[0].rounds[-1].metrics


@pytest.mark.quick("client-distributed")
@pytest.mark.parametrize("scheme", ["client", "client-distributed", "parallel", "sequential", "joint"])
def test_without_noise_the_same_rounds_go_the_way_that_the_noise_hides(scheme: str) -> None:
    """The mean of twelve noisy studies is nearer to it than each of them: by √12 if nothing else differs. Beyond 0.67
    of the distance, where three numbers are as likely as one in ten thousand (chi-square), the rounds are others.
    """
    algorithm = {"algorithm": "fedavg", "local_steps": 2, "learning_rate": 0.3}
    training = algorithm if scheme in ("client", "parallel") else {}
    more = {"training": training, "max_steps": 4, "expected_clients": 6.0, "noise_multiplier": 4.0}
    if scheme == "joint":
        # Wide enough that no hospital is clipped, and that neither limit ends the study.
        more |= {"client_clip_norm": 20.0, "limits": [limit(level, epsilon=1e9) for level in ("instance", "client")]}
    chosen = settings(scheme, **more)
    rounds = chosen.rounds
    quiet = Engine(without_noise(chosen, rounds), clients(), 2, Loop).run()
    assert len(quiet.rounds) == rounds
    noisy = [flat(Engine(chosen, clients(), seed, Loop).run()) for seed in range(12)]
    target = flat(quiet)
    apart = np.linalg.norm(np.mean(noisy, axis=0) - target)
    assert apart < np.mean([np.linalg.norm(one - target) for one in noisy]) * 0.67


def flat(found: SimulationOutcome) -> np.ndarray:
    return np.concatenate([found.weights[name].ravel() for name in sorted(found.weights)]).astype(float)


def test_a_study_ends_where_its_budget_does() -> None:
    chosen = settings(max_steps=50, limits=[limit("instance", epsilon=9.0)])
    found = Engine(chosen, clients(4), 1, Loop).run()
    assert found.stop_reason == "budget-exhausted"
    assert 0 < len(found.rounds) < 50
    spent = [shown.spent[0] or 0.0 for shown in found.rounds]
    assert spent == sorted(spent)
    assert spent[-1] <= 9.0


RULES = {
    "fixed-plan": {"max_steps": 4, "sampling_rate": 0.5, "noise_multiplier": 2.0},
    "gaussian-filter": {"max_steps": 50, "sampling_rate": 1.0, "noise_multiplier": 3.0},
    "renyi-order": {"max_steps": 50, "sampling_rate": 0.5, "noise_multiplier": 2.0},
}


@pytest.mark.parametrize("rule", RULES)
def test_a_simulation_a_plan_and_a_budget_name_one_number(rule: str) -> None:
    chosen = settings(limits=[limit("instance", epsilon=9.0, enforcement=rule)], **RULES[rule])
    found, planned = Engine(chosen, clients(4), 1, Loop).run(), forecast(plan_of(chosen))
    (of_limit,), stated = planned.limits, found.statements[0]
    assert len(found.rounds) == planned.rounds > 1
    assert found.rounds[-1].spent[0] == stated["spent"] == stated["certificate"]["epsilon"] == of_limit.epsilon
    assert found.rounds[0].spent[0] == of_limit.first_round
    # The running number stands beside it, and is one number, too.
    assert [report["epsilon"] for report in stated["reports"]] == [report.epsilon for _, report in of_limit.reports]


def test_a_plan_with_one_step_too_many_is_refused() -> None:
    kept = {"limits": [limit("instance", epsilon=2.0, enforcement="fixed-plan")], "noise_multiplier": 2.0}
    with pytest.raises(AccountingError, match="the whole plan of 500 steps spends"):
        Engine(settings(max_steps=500, **kept), clients(4), 1, Loop).run()


def test_a_first_round_that_does_not_fit_is_refused() -> None:
    chosen = settings(limits=[limit("instance", epsilon=3.0)])
    with pytest.raises(AccountingError, match="first round alone"):
        Engine(chosen, clients(4), 1, Loop).run()


def test_every_scheduled_evaluation_is_charged() -> None:
    question = {"prediction": "binary", "edges": [0.5], "noise_multiplier": 20.0}
    chosen = settings(
        max_steps=5,
        statistics={"max_queries": 10, "max_cells": 100},
        evaluation={"share": 0.25, "every": 2, "question": question},
    )
    found = Engine(chosen, clients(4), 1, Loop).run()
    # After the second and fourth model, and after the last.
    rounds = ["reserved", "settled"]
    kinds = [*rounds * 2, "asked", "settled", *rounds * 2, "asked", "settled", *rounds, "asked", "settled", "finished"]
    assert [event.kind for event in found.events] == kinds
    queried = [event.body["cost"] for event in found.events if event.kind == "asked"]
    assert queried == [queried[0]] * 3
    # Patients who are trained on bear the rounds alone.
    alone = Engine(settings(max_steps=5), clients(4), 1, Loop).run()
    assert found.statements[0]["spent"] == pytest.approx(alone.statements[0]["spent"], rel=1e-9)


@pytest.mark.slow
def test_an_engine_that_runs_twice_gives_the_same_and_leaves_the_threads_as_they_were() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        engine = Engine(settings("sequential", **BAYESIAN, expected_clients=6.0), clients(), 4, Loop)
        assert bytes_of(engine.run()) == bytes_of(engine.run())
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


class Mixing(Task):
    """Records meet in a layer, which only a study that clips whole updates may have."""

    def model(self) -> nn.Module:
        return nn.Sequential(nn.BatchNorm1d(2, track_running_stats=False), nn.Linear(2, 1))

    def loss(self, outputs: Any, targets: Any) -> Any:
        return logistic(outputs, targets)

    def dataset(self, data: Any) -> TaskDataset:
        return load("logistic-regression", TASK_PARAMETERS).dataset(data)

    def metrics(self, outputs: Any, targets: Any) -> dict[str, float]:
        return {}


def test_a_client_of_a_study_that_clips_updates_may_have_any_layer() -> None:
    dataset = Mixing().dataset(records(20))
    randomness = SeededRandomness(1, allow_insecure=True)
    whole = LocalTraining(Mixing(), dataset, settings("client"), randomness)
    weights = weights_of(whole.task.model())
    other = whole.of_client("other", dataset)
    assert {name: array.shape for name, array in other.update(weights, None).items()} == {
        name: array.shape for name, array in weights.items()
    }
    with pytest.raises(ConfigurationError):
        LocalTraining(Mixing(), dataset, settings("parallel"), randomness).require_trainable()
