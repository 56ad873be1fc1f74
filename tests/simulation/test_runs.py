"""One study under several seeds: what is compared, and notes on public numbers of other records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from client_sdk.errors import ConfigurationError, TrainingStopped
from simulation.backends.base import Loop
from simulation.local_work import ClientStopped
from simulation.records import Dealer, HowSplit, Source
from simulation.runs import Simulation, notes_on
from tests.factories.hospitals import records
from tests.factories.settings import settings
from tests.simulation.test_engine import clients


def simulation(share: float = 0.25, **options: Any) -> Simulation:
    dealer = Dealer(Source((records(120),), None, None), HowSplit("iid"), 4, share)
    chosen = settings(max_steps=2, **options.pop("study", {}))
    return Simulation(chosen, dealer, "loop", Loop, **options)


def test_a_seed_is_run_on_its_own_records_and_gives_the_same_again() -> None:
    whole = simulation(compares=False)
    first, again, other = (whole.run(seed) for seed in (1, 1, 2))
    assert (first.seed, first.clients, first.records) == (1, 4, 90)
    assert first.outcome.rounds == again.outcome.rounds != other.outcome.rounds
    assert (first.plain, first.beside) == (None, None)


def test_a_study_is_compared_with_its_rounds_without_noise_pooled_and_alone() -> None:
    done = simulation().run(1)
    assert done.plain is not None
    assert [view.round for view in done.plain] == [view.round for view in done.outcome.rounds]
    assert done.beside is not None
    assert len(done.beside.alone) == 4
    assert done.missed == ()


def test_without_test_records_nothing_is_compared() -> None:
    done = simulation(share=0.0).run(1)
    assert (done.plain, done.beside, done.records) == (None, None, 120)


def test_a_comparison_that_fails_takes_nothing_from_the_study(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_finite(*_: Any) -> Any:
        raise TrainingStopped("training without privacy")

    def stopped(*_: Any) -> Any:
        raise ClientStopped("client-0", 1, "NaN")

    monkeypatch.setattr("simulation.runs.baselines", not_finite)
    monkeypatch.setattr("simulation.runs.without_noise", stopped)
    done = simulation().run(1)
    assert len(done.outcome.rounds) == 2
    assert [("same rounds" in text, "pooled" in text) for text in done.missed] == [(True, False), (False, True)]


def test_every_seed_has_a_checkpoint_of_its_own(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    whole = simulation(compares=False, checkpoints=kept)
    for seed in (1, 2):
        whole.run(seed)
    assert sorted(path.name for path in kept.iterdir()) == ["seed-1.safetensors", "seed-2.safetensors"]


@pytest.mark.parametrize(
    ("privacy", "words"),
    [
        ({}, []),
        ({"expected_clients": 8.0}, ["privacy.expected_clients is 8, and 4 of these clients"]),
        ({"expected_batch_size": 5.0}, ["privacy.expected_batch_size is 5, and the batches of these clients have 20"]),
        # Half of them take part, and two are expected.
        ({"client_sampling_rate": 0.5, "expected_clients": 2.0}, []),
    ],
)
def test_public_numbers_of_other_records_are_noted(privacy: dict[str, Any], words: list[str]) -> None:
    scheme = "client" if "client_sampling_rate" in privacy else "parallel"
    notes = list(notes_on(settings(scheme, **privacy), clients(4)))
    assert len(notes) == len(words)
    assert all(note.startswith(word) for note, word in zip(notes, words, strict=True))


def test_fewer_clients_than_the_study_starts_with_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"schedule\.min_clients is 5, and clients are 4"):
        simulation(study={"schedule": {"min_clients": 5}}).notes(1)
