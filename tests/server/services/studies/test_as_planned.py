"""`wardround plan` and the coordinator agree: whole studies in the service end at the round and ε that was forecast."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from shutil import copyfile
from typing import Any

import numpy as np
import pytest

from accounting.budget.forecast import Forecast, forecast
from accounting.budget.solve import least_noise
from server.db.session import Database
from server.services import views
from server.services.coordinator import Coordinator
from server.services.secure_sum import lists
from server.services.studies import lifecycle
from study_protocol.study.plan_of import plan_of
from study_protocol.study.settings import StudySettings
from tests.factories.hospital_double import MODEL, update
from tests.factories.masked_studies import STEPS, MaskedHospital
from tests.factories.settings import changed, limit, settings
from tests.factories.studies import FakeClock, coordinator_on, open_study, work
from wardround.cli.lead.templates import study_text, study_values
from wardround.cli.shared.settings_file import changed_settings, read_settings

LOUD, QUIET = 1e6, 0.02
NOISED = {"disclosure": "noised", "histogram_noise": {"std": 30.0, "every": 2}}


def study(scheme: str, *, epsilon: float, bayesian: float | None = None, **options: Any) -> StudySettings:
    """Eight steps at most, and limits that some of them reach before."""
    levels = {"client": ["client"], "joint": ["instance", "client"]}.get(scheme, ["instance"])
    limits = [limit(level, epsilon=epsilon) for level in levels]
    if bayesian is not None:
        limits += [limit(level, "bayesian", epsilon=bayesian) for level in levels]
    return settings(scheme, bayesian=bayesian is not None, **({"max_steps": 8, "limits": limits} | options))


STUDIES = {
    "parallel": study("parallel", epsilon=8.0),
    "parallel, all steps": study("parallel", epsilon=50.0),
    "parallel, masked": study("parallel", epsilon=2.4, masked=True),
    "parallel, bayesian": study("parallel", epsilon=9.0, bayesian=6.0),
    "parallel, bayesian at the end": study("parallel", epsilon=9.0, bayesian=6.0, disclosure="at-end"),
    "parallel, bayesian, noised": study(
        "parallel", epsilon=9.0, bayesian=6.0, accounting_sample={"records": 600, "source": "members"}, **NOISED
    ),
    "parallel, bayesian, masked": study("parallel", epsilon=4.0, bayesian=2.85, masked=True, noise_multiplier=2.0),
    "parallel, local steps": study(
        "parallel", epsilon=9.0, training={"algorithm": "fedavg", "local_steps": 2}, noise_multiplier=1.2
    ),
    "sequential": study("sequential", epsilon=2.9, noise_multiplier=1.0),
    "sequential, bayesian": study("sequential", epsilon=4.0, bayesian=2.8, noise_multiplier=1.0),
    "client": study("client", epsilon=14.0),
    "client, bayesian": study("client", epsilon=20.0, bayesian=14.0),
    "client, masked": study("client", epsilon=3.0, masked=True),
    "joint": study("joint", epsilon=3.2, max_steps=6),
    "joint, bayesian": study("joint", epsilon=3.3, bayesian=3.2, max_steps=6),
}


TEMPLATES = {
    " ".join(["template", *flags]): study_values(**dict.fromkeys(flags, True))
    for flags in ((), ("bayesian",), ("masked",), ("bayesian", "masked"), ("masked", "client_level"))
}


@pytest.fixture
def coordinator(sqlite_template: Path, tmp_path: Path) -> Iterator[Coordinator]:
    copyfile(sqlite_template, tmp_path / "wardround.db")
    database = Database(f"sqlite:///{tmp_path / 'wardround.db'}", clock=FakeClock())
    yield coordinator_on(database, tmp_path)
    database.dispose()


def whole(coordinator: Coordinator, chosen: StudySettings, cost: float) -> None:
    """Rounds until the study has ended by itself; every hospital reports this cost, in nats, as far as it reports."""
    hospitals = open_study(coordinator, clients=max(5, chosen.schedule.min_clients), settings=chosen)
    privacy = chosen.privacy
    reports = privacy.estimates_records
    told = None if not reports or privacy.bayesian is None else (cost,) * (1 + len(privacy.bayesian.orders))
    # Eight parameters: a norm just below the clip norm is in the last bin, the worst that a client can be.
    moved = 0.001 if cost < 1 else 0.999 / 8**0.5
    number = 0
    work(coordinator)
    while lifecycle.show(coordinator, "sepsis").state == "running":
        number += 1
        if privacy.masking is None:
            for hospital in hospitals:
                hospital.send(number, update(moved if privacy.rules.central else 0.1, log_moments=told))
        else:
            _masked_round(coordinator, chosen, hospitals, number, told, moved)
        work(coordinator)


def _masked_round(
    coordinator: Coordinator,
    chosen: StudySettings,
    hospitals: list[Any],
    number: int,
    told: tuple[float, ...] | None,
    moved: float,
) -> None:
    tensors = {name: np.full_like(array, 0.1) for name, array in MODEL.items()}
    turns = [
        MaskedHospital(one, tensors, reported=told, distance=moved * 8**0.5).session(coordinator, chosen, number)
        for one in hospitals
    ]
    for step in STEPS:
        if lists.read_session(coordinator, "sepsis", number)[1].phase == step:
            for turn in turns:
                turn.take(step)
            work(coordinator)


def ended(coordinator: Coordinator) -> tuple[int, str | None, list[tuple[str, float]]]:
    """Charged rounds, why it ended, and what is stated of each limit."""
    stated = views.read_budget(coordinator, "sepsis")
    spent = [(one.definition, one.spent) for one in stated.limits if one.epsilon is not None]
    assert all(value is not None for _, value in spent)
    return lifecycle.show(coordinator, "sepsis").rounds, stated.stop_reason, spent  # type: ignore[return-value]


def assert_kept(found: Forecast, spent: list[tuple[str, float]], rounds: int) -> None:
    for (definition, value), one in zip(spent, found.limits, strict=True):
        if definition == "classical" and rounds == found.rounds:
            assert value == one.epsilon
        else:
            assert value <= (one.epsilon if rounds == found.rounds else one.at_most)


@pytest.mark.quick("parallel, bayesian")
@pytest.mark.parametrize("name", STUDIES)
def test_at_the_worst_a_study_ends_as_planned(coordinator: Coordinator, name: str) -> None:
    chosen = STUDIES[name]
    found = forecast(plan_of(chosen), tight=False)
    whole(coordinator, chosen, LOUD)
    rounds, reason, spent = ended(coordinator)
    assert (rounds, reason) == (found.rounds, found.reason)
    assert_kept(found, spent, rounds)


# Thirty masked rounds take a minute; other studies under masks take all their steps.
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in TEMPLATES if "masked" not in name])
def test_a_template_goes_its_whole_way_as_planned(coordinator: Coordinator, tmp_path: Path, name: str) -> None:
    (tmp_path / "study.toml").write_text(study_text(TEMPLATES[name]))
    printed = read_settings(tmp_path / "study.toml")
    found = forecast(plan_of(printed), tight=False)
    whole(coordinator, printed, LOUD)
    rounds, reason, spent = ended(coordinator)
    assert (rounds, reason) == (found.rounds, found.reason) == (printed.rounds, "max-steps-reached")
    assert_kept(found, spent, rounds)


@pytest.mark.slow
@pytest.mark.parametrize("name", TEMPLATES)
def test_every_template_with_less_noise_is_ended_by_its_limits_as_planned(
    coordinator: Coordinator, tmp_path: Path, name: str
) -> None:
    (tmp_path / "study.toml").write_text(study_text(TEMPLATES[name]))
    printed = read_settings(tmp_path / "study.toml")
    quieter = changed(printed, noise_multiplier=0.6 * printed.privacy.noise_multiplier)
    found = forecast(plan_of(quieter), tight=False)
    whole(coordinator, quieter, LOUD)
    rounds, reason, spent = ended(coordinator)
    assert (rounds, reason) == (found.rounds, found.reason)
    assert (0 < rounds < quieter.rounds, reason) == (True, "budget-exhausted")
    assert_kept(found, spent, rounds)


@pytest.mark.quick("sequential, bayesian")
@pytest.mark.parametrize("name", [name for name, chosen in STUDIES.items() if chosen.privacy.bayesian is not None])
def test_a_study_whose_records_cost_little_goes_on_within_what_was_planned(coordinator: Coordinator, name: str) -> None:
    chosen = STUDIES[name]
    found = forecast(plan_of(chosen), tight=False)
    whole(coordinator, chosen, QUIET)
    rounds, _, spent = ended(coordinator)
    assert found.rounds <= rounds <= found.at_most_rounds
    assert_kept(found, spent, rounds)


def test_some_of_these_studies_are_ended_by_each_reason() -> None:
    """Or the comparison would show little."""
    found = {name: forecast(plan_of(chosen), tight=False) for name, chosen in STUDIES.items()}
    assert {one.reason for one in found.values()} == {"max-steps-reached", "budget-exhausted"}
    assert sum(one.reason == "budget-exhausted" and one.rounds > 1 for one in found.values()) >= 8
    assert sum(one.rounds < one.at_most_rounds for one in found.values()) >= 4


@pytest.mark.quick("parallel")
@pytest.mark.parametrize("name", ["parallel", "parallel, bayesian, masked", "client, bayesian"])
def test_with_the_noise_that_was_solved_for_all_steps_are_taken(coordinator: Coordinator, name: str) -> None:
    chosen, _ = changed_settings(STUDIES[name], least_noise(plan_of(STUDIES[name])))
    assert chosen.privacy.noise_multiplier != STUDIES[name].privacy.noise_multiplier
    whole(coordinator, chosen, LOUD)
    assert ended(coordinator)[:2] == (8, "max-steps-reached")
