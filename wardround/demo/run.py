"""The demonstration from beginning to end: processes up, study opened, rounds followed, account printed, all down."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from client_sdk.api.client import Client
from client_sdk.study.hospital import Hospital
from client_sdk.study.result import study_model
from study_protocol.study.queries import QueryDocument
from study_protocol.study.settings import StudySettings
from wardround.demo import by_hospital, report, scenarios
from wardround.demo.averaged import accuracy_of, in_words
from wardround.demo.board import Accuracies, Board
from wardround.demo.hospitals import Joined
from wardround.demo.live import (
    LiveCoordinator,
    LiveHospital,
    embedded_postgres,
    open_study,
    postgres_folder,
    roster_number,
)
from wardround.demo.own_patients import answer
from wardround.demo.processes import Process, Processes, ProcessFailed, environment
from wardround.demo.scenarios import Scenario
from wardround.demo.watch import Follower

STUDY = "demo"
BASELINE_SECONDS = 240.0


class LedgersDisagree(Exception):
    """The budget that the coordinator states is not the one that its own ledger gives."""


@dataclass(frozen=True)
class Options:
    """keep: leave the coordinator up. home: where everything lies. drop_out: kill a hospital on the way."""

    home: Path
    postgres: bool = False
    keep: bool = False
    drop_out: bool = False


@dataclass(frozen=True)
class Ending:
    """Accuracy of the last released model, by round, and where the report lies."""

    reason: str
    rounds: int
    accuracies: dict[int, float]
    baselines: dict[str, Any]
    page: Path


def run(scenario: Scenario, settings: StudySettings, options: Options, console: Console) -> Ending:
    """Run the whole demonstration.

    Raises:
        ProcessFailed: one of the processes died; the error holds the end of its log.
        LedgersDisagree: see there.
    """
    with ExitStack() as stack:
        url = stack.enter_context(embedded_postgres(keep=options.keep)) if options.postgres else None
        processes = stack.enter_context(Processes())
        stage = _prepared(scenario, settings, options, processes)
        coordinator = LiveCoordinator(options.home / "coordinator", processes, database_url=url)
        with console.status("starting the coordinator"):
            coordinator.prepare()
            serving = coordinator.serve()
        board = Board(console, settings)
        board.opening(scenario, coordinator.origin, str(options.home))
        with coordinator.operator() as operator:
            ending = _study(stage, coordinator, operator, board, console)
        if options.keep:
            processes.leave(serving)
            database = "" if url is None else f" $(head -1 {postgres_folder(url)}/postmaster.pid)"
            board.files({"The coordinator still runs. Stop it with": f"kill {serving.popen.pid}{database}"})
        return ending


@dataclass(frozen=True)
class _Stage:
    """What is there before the coordinator: everybody's files, and the baselines, already at work."""

    scenario: Scenario
    settings: StudySettings
    options: Options
    hospitals: dict[str, LiveHospital]
    evaluation: Path
    baselines: Process


def _prepared(scenario: Scenario, settings: StudySettings, options: Options, processes: Processes) -> _Stage:
    hospitals = _hospitals(scenario, options.home, processes)
    evaluation = scenarios.write(scenario.evaluation, options.home / "evaluation")
    # They ask nobody: a core is idle while the coordinator starts.
    baselines = _start_baselines(settings, options.home, evaluation, hospitals, processes)
    return _Stage(scenario, settings, options, hospitals, evaluation, baselines)


def _study(stage: _Stage, coordinator: LiveCoordinator, operator: Client, board: Board, console: Console) -> Ending:
    scenario, settings, options, hospitals = stage.scenario, stage.settings, stage.options, stage.hospitals
    with console.status("opening the study, enrolling the hospitals"):
        open_study(operator, STUDY, scenario.source, settings, hospitals, coordinator.origin)
    if settings.privacy.masking is not None:
        board.pinned(list(hospitals), roster_number(STUDY, Hospital.open(next(iter(hospitals.values())).home)))
    question = by_hospital.question(settings)
    with _quiet_interrupt(console):
        follower, accuracies = _follow(stage, coordinator, operator, board, question)
    budget = operator.budget(STUDY)
    _require_agreement(budget.model_dump(mode="json"), follower)
    with console.status("waiting for the baselines"):
        stage.baselines.wait(BASELINE_SECONDS)
        stage.baselines.check()
    baselines: dict[str, Any] = json.loads((options.home / "baselines.json").read_text())
    released = sorted(accuracies)
    result = study_model(operator, STUDY)
    model = result.body
    study, last, averaged = None, None, tuple[int, ...]()
    if released:
        study = accuracy_of(model, settings, stage.evaluation, _patient_column(stage.evaluation))
        last, averaged = accuracies[released[-1]], result.averaged or tuple(released[-1:])
    rounds = 0 if follower.budget is None else follower.budget.charged_rounds
    reached = Accuracies(study, last, averaged, in_words(settings, averaged), rounds, answer(operator, STUDY))
    certificate, words = (b"", []) if question is None else by_hospital.certified(operator, STUDY)
    board.ending(budget, baselines, reached)
    board.by_hospital(words)
    page = report.write(
        options.home / "report",
        model,
        scenario,
        settings,
        budget,
        follower.entries,
        accuracies,
        reached,
        baselines,
        words,
    )
    if certificate:
        page.with_name("certificate.json").write_bytes(certificate)
    board.files(_files(page, coordinator, budget.ledger.entries, certified=bool(certificate), keep=options.keep))
    return Ending(budget.stop_reason or "", rounds, accuracies, baselines, page)


def _follow(
    stage: _Stage, coordinator: LiveCoordinator, operator: Client, board: Board, question: QueryDocument | None
) -> tuple[Follower, dict[int, float]]:
    """Let the hospitals join, show every round, and ask the question at the end. Return accuracies by round."""
    spare = len(stage.hospitals) - stage.settings.schedule.min_clients
    joined = Joined(
        STUDY,
        coordinator.origin,
        stage.hospitals,
        coordinator.processes,
        spare,
        board.note,
        stage.options.drop_out,
    )
    joined.start_all()
    _start_evaluator(coordinator, stage.scenario, stage.evaluation)
    board.heading()
    follower, accuracies = Follower(operator, STUDY, joined.check), dict[int, float]()
    for moment in follower.rounds():
        board.round(moment.view, moment.limits)
        if moment.view.metrics is not None:
            accuracies[moment.view.round] = moment.view.metrics.values["accuracy"]
        joined.round_over(moment.view.round)
        if question is not None and not follower.trains_again:
            operator.ask_query(STUDY, question)
    joined.wait()
    return follower, accuracies


def _files(page: Path, coordinator: LiveCoordinator, entries: int, *, certified: bool, keep: bool) -> dict[str, str]:
    return {
        "Model": str(page.with_name("model.safetensors")),
        "Report": str(page),
        **({"Certificate": str(page.with_name("certificate.json"))} if certified else {}),
        "Ledger": f"{page.with_name('ledger.json')} ({entries} entries, replayed here: same numbers)",
        "Ask for the budget": f'curl -H "Authorization: Bearer $(cat {coordinator.viewer_key_file})" '
        f"{coordinator.origin}/v1/studies/{STUDY}/budget"
        + ("" if keep else "   (while the coordinator is up: --keep)"),
    }


def _hospitals(scenario: Scenario, home: Path, processes: Processes) -> dict[str, LiveHospital]:
    hospitals: dict[str, LiveHospital] = {}
    for name, records in scenario.hospitals.items():
        folder = home / "hospitals" / name
        folder.mkdir(parents=True, exist_ok=True)
        path = scenarios.write(records, folder / name)
        hospitals[name] = LiveHospital(name, folder / "wardround", path, _patient_column(path), processes)
    return hospitals


def _start_evaluator(coordinator: LiveCoordinator, scenario: Scenario, data: Path) -> Process:
    log = coordinator.home.parent / "evaluator.log"
    env = environment(server=coordinator.origin, api_key_file=coordinator.operator_key_file)
    name = f"{len(scenario.evaluation)} held out, outside the guarantee"
    return coordinator.processes.start(
        "evaluator", [*_module("evaluator"), STUDY, str(data), "--name", name, *_patient_option(data)], env=env, log=log
    )


def _start_baselines(
    settings: StudySettings, home: Path, evaluation: Path, hospitals: dict[str, LiveHospital], processes: Processes
) -> Process:
    (home / "settings.json").write_text(settings.model_dump_json())
    paths = [str(hospital.data) for hospital in hospitals.values()]
    fixed = [str(home / name) for name in ("settings.json", "baselines.json")]
    arguments = [*_module("baselines"), *fixed, str(evaluation), *paths, *_patient_option(evaluation)]
    # Behind the study: the hospitals' rounds come first.
    return processes.start("baselines", ["nice", *arguments], env=environment(), log=home / "baselines.log")


def _module(name: str) -> list[str]:
    return [sys.executable, "-m", f"wardround.demo.{name}"]


def _patient_column(path: Path) -> str | None:
    return "patient" if path.suffix == ".csv" else None


def _patient_option(path: Path) -> list[str]:
    column = _patient_column(path)
    return [] if column is None else ["--patient-column", column]


def _require_agreement(stated: dict[str, Any], follower: Follower) -> None:
    assert follower.budget is not None, "a finished study has a ledger"
    recomputed = [(limit["level"], limit["definition"], limit["spent"]) for limit in follower.budget.statements()]
    theirs = [(limit["level"], limit["definition"], limit["spent"]) for limit in stated["limits"]]
    if recomputed != theirs:
        raise LedgersDisagree(f"the ledger gives {recomputed}, the coordinator states {theirs}")


@contextmanager
def _quiet_interrupt(console: Console) -> Generator[None]:
    try:
        yield
    except KeyboardInterrupt:
        console.print("stopping every process …")
        raise
    except ProcessFailed as error:
        console.print(f"[red]{error.name} has died[/]")
        raise
