"""Rounds around a strategy: charged before they begin, ended by the limit with the model that is there."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dp_accounting
import numpy as np
import pytest

from client_sdk.errors import ConfigurationError, OwnBudgetExceeded
from study_protocol.randomness.source import SeededSource
from tests.factories import flower_messages
from tests.factories.flower_messages import Array, ArrayRecord, Error, MeanStrategy, Message, trained
from wardround.flower.mod import HospitalMod
from wardround.flower.round_terms import LEDGER_HEAD, RoundTerms
from wardround.flower.run_ledger import RunLedger
from wardround.flower.strategy import KeptRounds

DELTA, NODES = 1e-5, 3
TERMS = RoundTerms(noise_multiplier=4.0, clip_norm=1.0)
ZEROS = ArrayRecord({"w": Array(np.zeros(20))})


@pytest.fixture(autouse=True)
def _flower(monkeypatch: pytest.MonkeyPatch) -> None:
    flower_messages.install(monkeypatch)


def ledger_in(folder: Path, epsilon: float = 2.0, **more: Any) -> RunLedger:
    return RunLedger(folder / "runs.db", epsilon=epsilon, delta=DELTA, **more)


def answer(message: Message) -> Message:
    return trained(np.ones(20), **{"num-examples": 1.0})(message, None)


def kinds(ledger: RunLedger) -> list[str]:
    return [entry.kind for entry in ledger.entries()]


def test_a_run_ends_with_its_model_where_the_next_round_would_overspend(tmp_path: Path) -> None:
    ledger, sent = ledger_in(tmp_path), list[Message]()

    def grid(message: Message) -> Message:
        sent.append(message)
        # Whatever leaves was charged before.
        assert ledger.steps() == {TERMS.released(): math.ceil(len(sent) / NODES)}
        return answer(message)

    model = KeptRounds(MeanStrategy(NODES), ledger, TERMS).start(grid, ZEROS, num_rounds=9)
    rounds = len(sent) // NODES
    assert dp_accounting.get_epsilon_gaussian(4 / math.sqrt(rounds), DELTA) <= 2.0
    assert dp_accounting.get_epsilon_gaussian(4 / math.sqrt(rounds + 1), DELTA) > 2.0
    np.testing.assert_allclose(model["w"].numpy(), rounds)
    assert kinds(ledger) == ["opened", *["reserved", "settled"] * rounds]
    with pytest.raises(OwnBudgetExceeded):
        KeptRounds(MeanStrategy(NODES), ledger, TERMS).start(grid, ZEROS, num_rounds=1)


def test_hospitals_get_the_terms_and_the_head_of_the_ledger(tmp_path: Path) -> None:
    ledger = ledger_in(tmp_path)
    head = ":".join(map(str, ledger.head()))
    (message, *_) = KeptRounds(MeanStrategy(NODES), ledger, TERMS).configure_train(1, ZEROS, {}, None)
    config = message.content["config"]
    assert RoundTerms.from_config(config) == TERMS
    assert config[LEDGER_HEAD] == head


def test_hospitals_noise_is_in_the_model_that_is_released(tmp_path: Path) -> None:
    """False alarms: 1e-6 by six deviations of the squared norm, for a fixed seed either never or always."""
    mods = HospitalMod(lambda home: home, source=SeededSource(3, allow_insecure=True))
    homes = iter(tmp_path / f"hospital-{number}" for number in range(NODES))
    start = ArrayRecord({"w": Array(np.zeros(2000))})
    ledger = ledger_in(tmp_path)
    model = KeptRounds(MeanStrategy(NODES), ledger, TERMS).start(
        lambda message: mods(message, next(homes), trained(np.ones(2000))), start, num_rounds=1
    )
    # The mean of three updates of length 1 and noise of deviation 4 each: 16/3 in each number of the mean.
    squared = float(np.sum(model["w"].numpy() ** 2)) * NODES / 16
    assert abs(squared - 2000) < 6 * math.sqrt(2 * 2000)


def test_with_less_noise_than_was_counted_no_model_is_made(tmp_path: Path) -> None:
    ledger, inner = ledger_in(tmp_path), MeanStrategy(NODES)
    terms = TERMS.model_copy(update={"min_honest": NODES})
    lost = iter([True, False, False] + [False] * NODES)

    def grid(message: Message) -> Message:
        return Message(Error(6, "refused: policy"), message) if next(lost) else answer(message)

    KeptRounds(inner, ledger, terms).start(grid, ZEROS, num_rounds=2)
    assert inner.averaged == 1
    # The failed round stays charged: the server has seen two updates.
    assert kinds(ledger) == ["opened", "reserved", "reserved", "settled"]


def test_a_round_without_refusers_is_averaged_where_one_hospitals_noise_is_enough(tmp_path: Path) -> None:
    ledger, inner = ledger_in(tmp_path), MeanStrategy(NODES)
    errors = iter([True, False, False])
    kept = KeptRounds(inner, ledger, TERMS)
    model = kept.start(lambda m: Message(Error(6, "no"), m) if next(errors) else answer(m), ZEROS, num_rounds=1)
    np.testing.assert_allclose(model["w"].numpy(), 1.0)


def test_updates_with_different_weights_are_not_averaged(tmp_path: Path) -> None:
    ledger, inner = ledger_in(tmp_path), MeanStrategy(NODES)
    weights = iter([1.0, 1.0, 700.0])
    apps = lambda message: trained(np.ones(20), **{"num-examples": next(weights)})(message, None)  # noqa: E731
    KeptRounds(inner, ledger, TERMS).start(apps, ZEROS, num_rounds=1)
    assert inner.averaged == 0


def test_a_second_run_goes_on_from_the_first(tmp_path: Path) -> None:
    for _ in range(2):
        KeptRounds(MeanStrategy(NODES), ledger_in(tmp_path), TERMS).start(answer, ZEROS, num_rounds=1)
    ledger = ledger_in(tmp_path)
    assert ledger.epsilon() == pytest.approx(dp_accounting.get_epsilon_gaussian(4 / math.sqrt(2), DELTA), abs=1e-9)
    assert len({entry.body["study"] for entry in ledger.entries() if entry.kind == "reserved"}) == 2


def test_a_ledger_of_another_level_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="level instance"):
        KeptRounds(MeanStrategy(1), ledger_in(tmp_path), RoundTerms(unit="patient", noise_multiplier=1.0))
    patients = ledger_in(tmp_path / "patients", level="instance", rule="renyi")
    terms = RoundTerms(unit="patient", noise_multiplier=1.5, sampling_rate=0.01, steps=20)
    KeptRounds(MeanStrategy(NODES), patients, terms).start(answer, ZEROS, num_rounds=2)
    assert sum(patients.steps().values()) == 40


def test_names_of_the_strategy_are_still_there(tmp_path: Path) -> None:
    kept = KeptRounds(MeanStrategy(NODES), ledger_in(tmp_path), TERMS)
    assert kept.nodes == NODES
    with pytest.raises(AttributeError):
        _ = kept.no_such_name
    with pytest.raises(AttributeError):
        _ = KeptRounds.__getattr__(SimpleNamespace(), "strategy")  # type: ignore[arg-type]


def test_a_strategy_sees_only_the_mean_where_noise_is_counted_together(tmp_path: Path) -> None:
    seen = list[Any]()

    class Median(MeanStrategy):
        def aggregate_train(self, server_round: int, replies: Any) -> tuple[Any, Any]:
            seen.extend(reply.content["arrays"]["w"].numpy() for reply in replies)
            return super().aggregate_train(server_round, replies)

    steps = iter([0.0, 1.0, 5.0])
    terms = TERMS.model_copy(update={"min_honest": NODES})
    kept = KeptRounds(Median(NODES), ledger_in(tmp_path), terms)
    kept.start(lambda message: trained(np.full(20, next(steps)))(message, None), ZEROS, num_rounds=1)
    np.testing.assert_array_equal(seen, np.full((NODES, 20), 2.0))


def test_other_arrays_than_were_sent_make_no_model_where_noise_is_counted_together(tmp_path: Path) -> None:
    inner, terms = MeanStrategy(NODES), TERMS.model_copy(update={"min_honest": NODES})
    kept = KeptRounds(inner, ledger_in(tmp_path), terms)

    def grid(message: Message) -> Message:
        reply = answer(message)
        reply.content["arrays"]["more"] = Array(np.zeros(2))
        return reply

    kept.start(grid, ZEROS, num_rounds=1)
    assert inner.averaged == 0


def test_a_run_has_a_name_that_hospitals_take(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="a run's name"):
        KeptRounds(MeanStrategy(NODES), ledger_in(tmp_path), TERMS, run="a run")
