"""A hospital's modifier: it pays first, clips, adds noise, tells nothing else, and refuses by its policy."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client_sdk.guard.charges import Charge
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from study_protocol.randomness.source import SeededSource
from tests.factories import flower_messages
from tests.factories.flower_messages import Message, request, trained
from wardround.flower.mod import HospitalMod
from wardround.flower.round_terms import LEDGER_HEAD, RUN, PatientTraining, RoundTerms
from wardround.flower.update_noise import UpdateNoise

SIZE = 400
TERMS = RoundTerms(noise_multiplier=4.0, clip_norm=1.0)
HEAD = "3:" + "ab" * 32
WEIGHTS = np.linspace(-1, 1, SIZE).astype(np.float32)
STEP = np.full(SIZE, 2.0, np.float32)


@pytest.fixture(autouse=True)
def _flower(monkeypatch: pytest.MonkeyPatch) -> None:
    flower_messages.install(monkeypatch)


def asked(terms: RoundTerms = TERMS, kind: str = "train", **more: Any) -> Message:
    return request(WEIGHTS, {**terms.to_config(), RUN: "run-1", LEDGER_HEAD: HEAD, "lr": 0.1, **more}, kind)


def modifier(home: Path, **more: Any) -> HospitalMod:
    return HospitalMod(home, source=SeededSource(5, allow_insecure=True), **more)


def entries(home: Path) -> list[tuple[str, int | None]]:
    with HospitalLedger.open(ledger_path(home, "records"), read_only=True) as ledger:
        return [(entry.kind, entry.round) for entry in ledger.entries if entry.kind in ("reserved", "settled")]


def policy(home: Path, text: str) -> None:
    (home / "policy.toml").write_text(text)


def test_an_answer_is_the_clipped_update_with_noise_and_a_weight_of_one(tmp_path: Path) -> None:
    """False alarms: 1e-6 by six deviations of the noise's squared norm, for a fixed seed either never or always."""
    answer = modifier(tmp_path)(asked(), None, trained(STEP, **{"num-examples": 731, "train_loss": 0.25}))
    assert list(answer.content["arrays"]) == ["w"]
    assert dict(answer.content["metrics"]) == {"num-examples": 1.0}
    assert set(answer.content) == {"arrays", "metrics"}
    update = answer.content["arrays"]["w"].numpy() - WEIGHTS
    assert answer.content["arrays"]["w"].numpy().dtype == np.float32
    # Noise of deviation 4 on 400 numbers, beside which the clipped update is 1 long.
    assert abs(float(np.sum(update.astype(float) ** 2)) / 16 - SIZE) < 6 * math.sqrt(2 * SIZE)


def test_the_hospital_pays_before_the_app_trains_and_notes_what_leaves(tmp_path: Path) -> None:
    seen = list[list[tuple[str, int | None]]]()
    app = trained(STEP)

    def watched(message: Any, context: Any) -> Any:
        seen.append(entries(tmp_path))
        return app(message, context)

    modifier(tmp_path)(asked(), None, watched)
    assert seen == [[("reserved", 1)]]
    modifier(tmp_path)(asked(), None, watched)
    assert entries(tmp_path) == [("reserved", 1), ("settled", 1), ("reserved", 2), ("settled", 2)]
    with HospitalLedger.open(ledger_path(tmp_path, "records"), read_only=True) as ledger:
        assert ledger.charges() == [Charge("client", 4.0, 1.0, 1)] * 2
        assert [d.study for d in ledger.departures()] == ["flower:run-1"] * 2
        assert ledger.own_round("flower:run-1", 1).reported == {"server_ledger": HEAD}


def test_an_app_that_fails_tells_nothing_of_its_error_and_stays_charged(tmp_path: Path) -> None:
    def failing(message: Any, context: Any) -> Any:
        raise ValueError("patient 17 has no outcome")

    answer = modifier(tmp_path)(asked(), None, failing)
    assert answer.error.reason == "the training failed"
    assert entries(tmp_path) == [("reserved", 1)]


@pytest.mark.parametrize("step", [np.full(SIZE, np.nan), np.full(SIZE, np.inf)])
def test_an_update_that_is_not_finite_leaves_as_noise_alone(tmp_path: Path, step: Any) -> None:
    answer = modifier(tmp_path)(asked(), None, trained(step.astype(np.float32)))
    assert np.isfinite(answer.content["arrays"]["w"].numpy()).all()


def test_other_arrays_than_were_received_do_not_leave(tmp_path: Path) -> None:
    def other(message: Any, context: Any) -> Any:
        message.content["arrays"]["w"].values = np.zeros(3, np.float32)
        return trained(np.zeros(3, np.float32))(message, context)

    assert modifier(tmp_path)(asked(), None, other).error.reason == "the training failed"


def test_an_app_that_trains_in_the_received_arrays_changes_nothing(tmp_path: Path) -> None:
    def in_place(message: Any, context: Any) -> Any:
        values = message.content["arrays"]["w"].values
        values += 1e6
        return trained(np.zeros(SIZE, np.float32))(message, context)

    weights = WEIGHTS.copy()
    answer = modifier(tmp_path)(request(weights, TERMS.to_config()), None, in_place)
    # The update is 1e6 in each number, clipped to length 1, from the weights that were received.
    assert np.abs(answer.content["arrays"]["w"].numpy() - WEIGHTS).max() < 4 * 6


def test_evaluations_and_questions_are_refused_unless_the_hospital_allows_evaluations(tmp_path: Path) -> None:
    app = trained(STEP, accuracy=0.9)
    for kind in ("evaluate", "query", "query.patients"):
        assert "answers no messages" in modifier(tmp_path)(asked(kind=kind), None, app).error.reason
    answer = modifier(tmp_path, evaluates=True)(asked(kind="evaluate"), None, app)
    assert answer.content["metrics"]["accuracy"] == 0.9
    assert "answers no messages" in modifier(tmp_path, evaluates=True)(asked(kind="query"), None, app).error.reason


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("least_noise_multiplier = 5.0", "too-little-noise"),
        ('studies = ["sepsis"]', "study-not-allowed"),
        ('datasets = ["icu"]', "dataset-not-allowed"),
        ("needs_masking = true", "rule-not-kept"),
        ("min_witnesses = 1", "rule-not-kept"),
        ('excluded_patients = ["17"]', "rule-not-kept"),
        ('[statistics]\ndenied_columns = ["zip"]', "rule-not-kept"),
        ("[approval]\npeople = 2", "rule-not-kept"),
        ("[limits.client]\nepsilon = 0.5\ndelta = 1e-5", "own-budget-exceeded"),
    ],
)
def test_the_site_policy_refuses_before_anything_is_computed(tmp_path: Path, text: str, code: str) -> None:
    policy(tmp_path, text)

    def untouched(message: Any, context: Any) -> Any:
        raise AssertionError("the app was called")

    answer = modifier(tmp_path)(asked(), None, untouched)
    # The code alone: the policy is the hospital's.
    assert answer.error.reason == f"refused: {code}"
    path = ledger_path(tmp_path, "records")
    assert not path.exists() or entries(tmp_path) == []


def test_the_own_limit_ends_a_run_that_the_server_would_go_on_with(tmp_path: Path) -> None:
    policy(tmp_path, '[limits]\nrule = "gaussian"\n[limits.client]\nepsilon = 2.0\ndelta = 1e-5')
    answers = [modifier(tmp_path)(asked(), None, trained(STEP)) for _ in range(6)]
    # ε = 2 at δ = 1e-5 is Σ 1/σ² ≤ 0.2516, with 1 % of δ set aside: four rounds of 1/16 fit.
    assert [answer.has_error() for answer in answers] == [False] * 4 + [True] * 2
    assert len(entries(tmp_path)) == 8


def test_a_policy_without_limits_is_kept_at_the_largest_that_it_allows_a_study(tmp_path: Path) -> None:
    policy(tmp_path, "largest_epsilon = 1.0\nlargest_delta = 1e-5")
    answers = [modifier(tmp_path)(asked(), None, trained(STEP)) for _ in range(3)]
    assert answers[-1].has_error()


def test_patients_training_is_charged_to_records_and_its_arrays_pass(tmp_path: Path) -> None:
    terms = RoundTerms(unit="patient", noise_multiplier=1.1, sampling_rate=0.02, steps=50)
    training = PatientTraining(1.1, 0.02, 40)
    answer = modifier(tmp_path, training=training)(asked(terms), None, trained(STEP, train_loss=0.5))
    np.testing.assert_array_equal(answer.content["arrays"]["w"].numpy(), WEIGHTS + STEP)
    assert dict(answer.content["metrics"]) == {"num-examples": 1.0}
    with HospitalLedger.open(ledger_path(tmp_path, "records"), read_only=True) as ledger:
        assert ledger.charges() == [training.charge()]


def test_patients_training_needs_a_training_that_costs_no_more_than_the_terms(tmp_path: Path) -> None:
    terms = RoundTerms(unit="patient", noise_multiplier=1.1, sampling_rate=0.02, steps=50)
    assert modifier(tmp_path)(asked(terms), None, trained(STEP)).error.reason == "refused: no-private-training"
    dearer = modifier(tmp_path, training=PatientTraining(1.1, 0.02, 51))
    assert dearer(asked(terms), None, trained(STEP)).error.reason == "refused: other-training"


def test_models_with_whole_numbers_and_rounds_without_terms_are_refused(tmp_path: Path) -> None:
    counts = request(np.arange(4), TERMS.to_config())
    assert modifier(tmp_path)(counts, None, trained(np.ones(4))).error.reason == "refused: ConfigurationError"
    bare = request(WEIGHTS, {"lr": 0.1})
    assert modifier(tmp_path)(bare, None, trained(STEP)).error.reason == "refused: ConfigurationError"


def test_one_program_may_serve_several_simulated_hospitals(tmp_path: Path) -> None:
    homes = HospitalMod(lambda context: tmp_path / context, source=SeededSource(1, allow_insecure=True))
    for name in ("bay", "cape"):
        homes(asked(), name, trained(STEP))
        assert len(entries(tmp_path / name)) == 2


@pytest.mark.parametrize(
    "told",
    [{RUN: "\x1b[2J"}, {RUN: "a" * 101}, {RUN: ""}, {RUN: "a/b"}, {LEDGER_HEAD: "x" * 10**6}, {LEDGER_HEAD: "3:ab"}],
)
def test_a_servers_words_that_are_no_name_and_no_head_reach_no_ledger(tmp_path: Path, told: dict[str, str]) -> None:
    answer = modifier(tmp_path)(asked(**told), None, trained(STEP))
    assert answer.error.reason == "refused: ConfigurationError"
    assert not ledger_path(tmp_path, "records").exists()


@pytest.mark.parametrize("entry", [{"clip_norm": 1e308}, {"clip_norm": 5e-324}, {"noise_multiplier": 1e300}])
def test_terms_without_a_grid_are_refused_before_the_charge(tmp_path: Path, entry: dict[str, float]) -> None:
    config: dict[str, Any] = {f"wardround-{name}": value for name, value in entry.items()}
    answer: Any = modifier(tmp_path)(asked(**config), None, trained(STEP))
    assert answer.error.reason == "refused: ConfigurationError"
    assert not ledger_path(tmp_path, "records").exists()


def test_an_update_beyond_a_small_type_leaves_as_noise_alone(tmp_path: Path) -> None:
    def far(message: Any, context: Any) -> Any:
        return trained(np.full(SIZE, 1e6))(message, context)

    answer = modifier(tmp_path)(request(WEIGHTS.astype(np.float16), TERMS.to_config()), None, far)
    received = answer.content["arrays"]["w"].numpy()
    assert received.dtype == np.float16
    assert np.isfinite(received).all()


def test_noise_that_is_counted_together_leaves_on_one_grid(tmp_path: Path) -> None:
    terms = TERMS.model_copy(update={"min_honest": 2})
    answer = modifier(tmp_path)(asked(terms), None, trained(STEP))
    received = answer.content["arrays"]["w"].numpy()
    assert received.dtype == np.float64
    units = received / UpdateNoise.calibrated(1.0, SIZE, 4.0).spacing
    np.testing.assert_array_equal(units, np.rint(units))
    huge = request(np.full(SIZE, 1e30, np.float32), terms.to_config())
    assert modifier(tmp_path)(huge, None, trained(STEP)).error.reason == "refused: ConfigurationError"
