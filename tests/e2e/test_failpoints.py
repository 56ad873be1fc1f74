"""Every named failpoint of an unmasked study, in coordinator, worker and hospital: killed there, nothing lost.

Real processes and real sockets. Killing is batched: within one run every failpoint is walked through, one after the
other, while small studies go on, and at the end the laws must hold of each of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

import client_sdk.study.enrolment  # these six register their failpoints
import client_sdk.study.joining
import client_sdk.study.participation
import client_sdk.study.snapshot_taking  # noqa: F401
import record_sources.snapshot.preparation  # noqa: F401
import server.app  # noqa: F401
from client_sdk.api.client import Client
from private_learning.tasks import load
from private_learning.training.weights import weights_of
from study_protocol.study.messages import InvitationCreate, StudyCreate
from study_protocol.study.settings import StudySettings
from study_protocol.wire.failpoints import EXIT_CODE, names
from study_protocol.wire.tensors import encode
from tests.harness import laws, tiny
from tests.harness.dying_processes import HIT_SECONDS, MASKED, Stage
from tests.harness.forked import ForkedProcesses, become_wardround_with_room
from tests.harness.object_store import ObjectStore
from wardround.demo.live import LiveHospital, embedded_postgres, site_policy
from wardround.demo.processes import Process, Processes, ProcessFailed, until

# Many processes on few cores: generous, because a slow machine is no failure.
pytestmark = pytest.mark.timeout(900)

END_SECONDS = 240.0
# No round ends for want of an answer while its hospital waits for a coordinator that is dead most of the time.
DEADLINE = 3600.0
# Enough that every point is met before the study ends; whoever is killed least needs least.
ROUNDS_OF_A_DYING_COORDINATOR = 80
ROUNDS_OF_A_DYING_HOSPITAL = 15

SETTING_UP = [name for name in names("api.") if "-model-" in name]
ABANDONING = [name for name in names("worker.") if name.endswith("-abandon")]
# Nothing is asked in the studies here; tests/e2e/test_queries_killed.py.
ASKED = {"worker.before-answer", "worker.after-answer"}
RUNNING = [
    name for name in (*names("worker."), *names("api.")) if name not in {*SETTING_UP, *ABANDONING, *MASKED, *ASKED}
]
ENROLLING = [name for name in names("hospital.") if name.endswith("-enrolment")]
REFUSING = [name for name in names("hospital.") if name.endswith("-refusal")]
# MASKED: the studies here are not masked; tests/e2e/test_masked_failpoints.py.
# Passed by a command of its own, outside any round: tests/client_sdk/study/test_participation_killed.py.
ROTATING = [name for name in names("hospital.") if name.endswith("-rotation")]
# Passed in rounds of many local steps only: tests/private_learning/training/test_checkpoint.py.
CHECKPOINTED = [name for name in names("hospital.") if name.endswith("-checkpoint")]
# Passed once, at a study's end, and where a coordinator lies: tests/client_sdk/study/test_witnessing.py.
WITNESSING = [name for name in names("hospital.") if name.endswith(("-witness", "-evidence"))]
# Passed before there is a study: tests/wardround/cli/hospital/test_snapshots_killed.py.
SNAPSHOTS = names("snapshot.")
APART = {*ENROLLING, *REFUSING, *ROTATING, *CHECKPOINTED, *WITNESSING, *MASKED, *ASKED}
TRAINING = [name for name in names("hospital.") if name not in APART]


class Scene(Stage):
    """One coordinator with up to three studies, none of whose hospitals is in another, and a log of the failpoints hit.

    central    scheme client: the coordinator adds the noise
    local      scheme parallel: the hospitals do
    refused    scheme parallel; one of its two hospitals refuses every round but the first, so that these are abandoned
    """

    def __init__(
        self, folder: Path, database_url: str | None, processes: Processes, store: ObjectStore | None = None
    ) -> None:
        sizes = dict.fromkeys(("alpha", "beta", "gamma", "delta"), 12)
        super().__init__(folder, database_url, processes, sizes, store)
        self.settings: dict[str, StudySettings] = {}
        self.members: dict[str, list[str]] = {}

    def plan(self, *, central: bool, rounds: int) -> None:
        """Which studies there are."""
        if central:
            self.settings["central"] = tiny.settings("client", clients=1, rounds=rounds, deadline_seconds=DEADLINE)
        self.settings["local"] = tiny.settings("parallel", clients=1, rounds=rounds, deadline_seconds=DEADLINE)
        self.settings["refused"] = tiny.settings("parallel", clients=2, rounds=rounds, deadline_seconds=DEADLINE)
        members = {"central": ["alpha"], "local": ["beta"], "refused": ["gamma", "delta"]}
        self.members = {study: members[study] for study in self.settings}

    def enter(self, name: str, failpoint: str | None = None) -> Process:
        """Let the hospital join the study that it is a member of."""
        return self.join(name, next(study for study, members in self.members.items() if name in members), failpoint)

    def homes(self, study: str) -> dict[str, Path]:
        return {name: self.hospitals[name].home for name in self.members[study]}


class _Processes(ForkedProcesses):
    become = staticmethod(become_wardround_with_room)


# Masked rounds are killed on PostgreSQL first: tests/e2e/test_masked_failpoints.py.
@pytest.fixture(params=["sqlite", *(pytest.param(name, marks=pytest.mark.slow) for name in ("postgresql", "objects"))])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    """objects: PostgreSQL and an object store, which is all that is left of a coordinator that died."""
    store = request.getfixturevalue("object_store") if request.param == "objects" else None
    database = nullcontext(None) if request.param == "sqlite" else embedded_postgres()
    with database as url, _Processes() as processes:
        yield Scene(tmp_path, url, processes, store)


@pytest.mark.slow
def test_a_coordinator_killed_at_every_failpoint_goes_on_where_it_was(scene: Scene):
    scene.plan(central=True, rounds=ROUNDS_OF_A_DYING_COORDINATOR)
    scene.coordinator.prepare()
    _create_studies_through(scene, SETTING_UP)
    _enrol_everybody(scene, {})
    for members in scene.members.values():
        for name in members:
            scene.enter(name)
    _with_an_operator(scene, lambda operator: [operator.move_study(study, "start") for study in scene.settings])
    scene.stop_coordinator()
    for failpoint in RUNNING:
        scene.wait_dead(scene.serve(failpoint), failpoint)
    # Its rounds pass the same points as settled ones, and are abandoned already.
    scene.serve()
    _with_an_operator(scene, _stop_refused)
    scene.stop_coordinator()
    for failpoint in ABANDONING:
        _let_two_rounds_begin(scene)
        # A settled round whose updates are gone can only be abandoned.
        scene.wait_dead(scene.serve("worker.after-settle"), "worker.after-settle")
        _lose_updates(scene)
        scene.wait_dead(scene.serve(failpoint), failpoint)
    scene.serve()
    scene.coordinator.wait_ready()
    assert set(scene.hit()) == {*SETTING_UP, *RUNNING, *ABANDONING}
    _finish_and_check(scene)


@pytest.mark.slow
def test_a_hospital_killed_at_every_failpoint_goes_on_where_it_was(scene: Scene):
    scene.plan(central=False, rounds=ROUNDS_OF_A_DYING_HOSPITAL)
    scene.coordinator.prepare()
    scene.serve()
    scene.coordinator.wait_ready()
    with scene.coordinator.operator() as operator:
        for study, settings in scene.settings.items():
            _create(operator, study, settings)
    _enrol_everybody(scene, {"beta": ENROLLING})
    with scene.coordinator.operator() as operator:
        for study in scene.settings:
            operator.move_study(study, "start")
    scene.enter("gamma")
    lanes: list[tuple[str, list[str]]] = [("beta", TRAINING), ("delta", REFUSING)]
    _at_once([lambda name=name, points=points: _walk(scene, name, points) for name, points in lanes])
    assert set(scene.hit()) == {*ENROLLING, *TRAINING, *REFUSING}
    scene.enter("beta")
    scene.enter("delta")
    _finish_and_check(scene)


def test_no_failpoint_of_an_unmasked_study_is_left_out():
    hospitals = [*ENROLLING, *REFUSING, *ROTATING, *CHECKPOINTED, *WITNESSING, *TRAINING]
    # Of commands and of runs of Flower: tests/client_sdk/study/test_objecting.py, tests/wardround/flower.
    elsewhere = [name for prefix in ("objection.", "hospital-mod.", "run-ledger.") for name in names(prefix)]
    walked = [*SETTING_UP, *RUNNING, *ABANDONING, *hospitals, *MASKED, *ASKED, *SNAPSHOTS, *elsewhere]
    assert sorted(walked) == names()
    assert len(walked) == len(set(walked))
    assert len(SETTING_UP) >= 3
    assert len(RUNNING) >= 15
    assert len(TRAINING) >= 7


def _create(operator: Client, study: str, settings: StudySettings) -> None:
    operator.create_study(StudyCreate(study=study, title="tiny", settings=settings))
    operator.put_initial_model(study, _initial_model(settings))


def _initial_model(settings: StudySettings) -> bytes:
    return encode(weights_of(load(settings.training.task, settings.training.task_parameters).model()))


def _create_studies_through(scene: Scene, failpoints: list[str]) -> None:
    """Upload each first model while the coordinator dies at a point of doing so; the client repeats the PUT."""
    scene.serve()
    scene.coordinator.wait_ready()
    with scene.coordinator.operator(patience_seconds=HIT_SECONDS) as operator:
        for study, settings in scene.settings.items():
            operator.create_study(StudyCreate(study=study, title="tiny", settings=settings))
        for (study, settings), failpoint in zip(scene.settings.items(), failpoints, strict=True):
            scene.stop_coordinator()
            dying = scene.serve(failpoint)
            upload = threading.Thread(target=operator.put_initial_model, args=(study, _initial_model(settings)))
            upload.start()
            scene.wait_dead(dying, failpoint)
            scene.serve()
            upload.join(HIT_SECONDS)
            assert not upload.is_alive()


def _enrol_everybody(scene: Scene, failpoints: dict[str, list[str]]) -> None:
    with scene.coordinator.operator() as operator:
        for study, members in scene.members.items():
            for name in members:
                token = operator.invite(study, InvitationCreate(client=name)).token
                for failpoint in failpoints.get(name, []):
                    _die_enrolling(scene, scene.hospitals[name], token, failpoint)
                policy = site_policy(study, scene.settings[study])
                if name == "delta":
                    # Its own limit has room for the first round alone: it stays to refuse every later one.
                    policy += "[limits.instance]\nepsilon = 0.3\ndelta = 1e-9\n"
                scene.hospitals[name].enrol(scene.coordinator.origin, token, policy)


def _die_enrolling(scene: Scene, hospital: LiveHospital, token: str, failpoint: str) -> None:
    with pytest.raises(ProcessFailed) as died:
        hospital.enrol(scene.coordinator.origin, token, "", failpoint=failpoint, failpoint_log=scene.hits)
    assert died.value.code == EXIT_CODE
    assert scene.hit()[-1] == failpoint


def _walk(scene: Scene, name: str, failpoints: list[str]) -> None:
    for failpoint in failpoints:
        scene.wait_dead(scene.enter(name, failpoint), failpoint)


def _at_once(works: list[Callable[[], None]]) -> None:
    failures: list[BaseException] = []

    def run(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001  carried over to the test's own thread
            failures.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def _with_an_operator(scene: Scene, act: Callable[[Client], object]) -> None:
    scene.coordinator.wait_ready()
    with scene.coordinator.operator() as operator:
        act(operator)


def _stop_refused(operator: Client) -> None:
    """Once a round of it was abandoned: whoever was killed so often may have come to none before."""

    def abandoned() -> bool:
        return any(view.state == "abandoned" for view in laws.whole_history(operator, "refused"))

    assert until(abandoned, seconds=HIT_SECONDS, check=_nothing, every=0.2), "no round of `refused` is abandoned"
    operator.move_study("refused", "stop")


def _let_two_rounds_begin(scene: Scene) -> None:
    """So that no round is left whose updates were lost before it was settled: it would be abandoned while settling."""
    scene.serve()
    scene.coordinator.wait_ready()
    with scene.coordinator.operator() as operator:
        running = [study for study in scene.settings if operator.study(study).state == "running"]
        wanted = {study: operator.budget(study).round + 2 for study in running}

        def begun() -> bool:
            # While one study waits for its hospital, another may come to its end, and begins no round any more.
            return all(
                operator.budget(study).round >= number or operator.study(study).state == "finished"
                for study, number in wanted.items()
            )

        assert until(begun, seconds=HIT_SECONDS, check=_nothing, every=0.2), "rounds stand still"
    scene.stop_coordinator()


def _lose_updates(scene: Scene) -> None:
    if scene.store is not None:
        updates = [key for key in scene.store.keys(scene.bucket) if "/update." in key]
        assert updates, "the round that was just settled has its updates in the store"
        scene.store.delete(scene.bucket, updates)
        return
    files = [*(scene.coordinator.home / "blobs" / "rounds").glob("*/*/update.*")]
    assert files, "the round that was just settled has its updates on disk"
    for path in files:
        path.unlink()


def _finish_and_check(scene: Scene) -> None:
    """`local` runs to its own end; the others are stopped. Then every law must hold of all three."""
    with scene.coordinator.operator(patience_seconds=END_SECONDS) as operator:
        for study in {"central", "refused"} & set(scene.settings):
            if operator.study(study).state != "finished":
                operator.move_study(study, "stop")

        def ended() -> bool:
            return all(operator.study(study).state == "finished" for study in scene.settings)

        assert until(ended, seconds=END_SECONDS, check=_nothing, every=0.5), "the studies do not end"
        for name, process in scene.joined.items():
            assert process.wait(END_SECONDS) == 0, f"{name}: {process.log.read_text()[-2000:]}"
        budgets = {study: laws.check(operator, study, scene.homes(study)) for study in scene.settings}
        assert operator.budget("local").stop_reason == "max-steps-reached"
        assert budgets["local"].charged_rounds == scene.settings["local"].rounds
        states = {study: {view.state for view in laws.whole_history(operator, study)} for study in scene.settings}
        assert "released" in states["local"]
        assert "released" in states.get("central", {"released"})
        assert "abandoned" in states["refused"] <= {"released", "abandoned", "stopped"}


def _nothing() -> None:
    """Nobody has to stay alive for this wait."""
