"""No unmasked vector stays in a hospital's folder once its sum was checked, wherever the hospital was killed."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from client_sdk.secure_sum import delivery
from client_sdk.study.hospital import Hospital
from private_learning import tasks
from private_learning.training.weights import weights_of
from study_protocol.secure_sum.vectors import RingVector
from study_protocol.wire.tensors import encode
from tests.factories.dying import Killed
from tests.factories.joining import STUDY, Site
from tests.factories.live_coordinator import Live, live
from tests.factories.settings import MASKING, settings
from tests.factories.studies import FakeClock

NAMES = ("alpha", "beta", "gamma", "delta")
VICTIM = "delta"
# Of a masked round, once there are words.
AFTER_TRAINING = (
    "after-training",
    "after-bytes",
    "after-settle",
    "after-octets",
    "after-consistency",
    "after-unmask",
    "after-send",
    "after-answer",
)
QUICK = ("after-bytes", "after-unmask", "after-send")


class MortalSite(Site):
    """A site that may be killed: what nothing catches ends its thread."""

    def run(self) -> None:
        try:
            super().run()
        except Killed as killed:
            self.error = killed


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Live]:
    with live(tmp_path / "home", time_of_day=FakeClock(), long_poll_seconds=1.0) as coordinator:
        yield coordinator


@pytest.fixture
def unmasked(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Every vector that a hospital makes, as it is before masks."""
    vectors: list[bytes] = []
    write = delivery.to_bytes

    def keep(words: dict[str, RingVector], clear: dict[str, np.ndarray]) -> bytes:
        # Short ones are found anywhere by chance.
        vectors.extend(vector.tobytes() for vector in words.values() if vector.nbytes >= 16)
        return write(words, clear)

    monkeypatch.setattr(delivery, "to_bytes", keep)
    return vectors


def opened(here: Live, folder: Path, rounds: int) -> list[MortalSite]:
    """Four hospitals in a study of so many masked rounds; without any of them none is opened."""
    masking = MASKING | {"min_survivors": 4}
    chosen = settings(masked=True, max_steps=rounds, expected_clients=4.0, masking=masking)
    model = tasks.load(chosen.training.task, chosen.training.task_parameters).model()
    here.open_study(STUDY, chosen, model=False)
    assert here.operator("PUT", f"/v1/studies/{STUDY}/models/0", content=encode(weights_of(model))).status_code == 201
    sites = [MortalSite(here, folder, name) for name in NAMES]
    for site in sites:
        site.enrol()
    assert here.operator("POST", f"/v1/studies/{STUDY}/start").status_code == 200
    return sites


def drive(here: Live, sites: list[MortalSite], seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while any(site.is_alive() for site in sites):
        assert time.monotonic() < end, [site.name for site in sites if site.is_alive()]
        here.work()
        time.sleep(0.02)


def files_with(vectors: list[bytes], directory: Path) -> list[str]:
    """Files below `directory` that hold one of the vectors, wholly or their first half."""
    files = [path for path in directory.rglob("*") if path.is_file()]
    pieces = [vector[: max(16, len(vector) // 2)] for vector in vectors]
    return [str(path.relative_to(directory)) for path in files if any(piece in path.read_bytes() for piece in pieces)]


@pytest.mark.quick("after-unmask")
@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in AFTER_TRAINING]
)
def test_no_unmasked_vector_outlives_its_result_wherever_a_hospital_is_killed(
    here: Live, tmp_path: Path, unmasked: list[bytes], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites, rounds = opened(here, tmp_path, 2), 2
    passages: list[str] = []

    def die(passed: str) -> None:
        if threading.current_thread().name == VICTIM and passed == f"hospital.{name}":
            passages.append(passed)
            # In the last round: no later one sweeps up after it.
            if len(passages) == rounds:
                raise Killed(passed)

    for module in ("secure_sum.round", "study.participation", "study.work", "study.answers"):
        monkeypatch.setattr(f"client_sdk.{module}.failpoint", die)
    for site in sites:
        site.start()
    drive(here, [sites[-1]])
    assert isinstance(sites[-1].error, Killed)
    again = sites[-1].again()
    again.start()
    drive(here, [*sites[:-1], again])
    assert [site.error for site in (*sites[:-1], again)] == [None] * 4
    assert len(unmasked) >= 4 * rounds
    # Nothing that was needed was lost: every round was released.
    budget = here.operator("GET", f"/v1/studies/{STUDY}/budget").json()
    assert (budget["round"], budget["stop_reason"]) == (rounds, "max-steps-reached")
    assert {site: files_with(unmasked, tmp_path / site) for site in NAMES} == {site: [] for site in NAMES}


@pytest.mark.slow
def test_a_hospital_that_never_joins_again_is_swept_by_any_command(
    here: Live, tmp_path: Path, unmasked: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    # As a version before this rule left it, and as a kill in the midst of a write does.
    monkeypatch.setattr("client_sdk.outbox.Outbox.keep", lambda *_, **__: None)
    sites = opened(here, tmp_path, 1)
    for site in sites:
        site.start()
    drive(here, sites)
    outbox = tmp_path / VICTIM / "outbox" / STUDY
    (outbox / ".1.safetensors.7.tmp").write_bytes(unmasked[0])
    (outbox / "checkpoint").write_bytes(unmasked[0])
    assert (outbox / "1.safetensors").exists()
    monkeypatch.undo()
    Hospital.open(tmp_path / VICTIM)
    assert files_with(unmasked, tmp_path / VICTIM) == []
