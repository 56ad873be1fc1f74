"""A coordinator that asks for the same sum again and again, each time without another hospital, over real HTTP.

Scheme client, masked. With central noise updates reach the sum exact, and no second sum from one model is opened. With
noise in shares every sum has all of the noise, and may be opened. The coordinator keeps every opened sum, says that it
was lost, and begins the next round from the same model.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client_sdk.secure_sum import checks
from private_learning import tasks
from private_learning.training.weights import weights_of
from server.api import secure_sum as api
from server.db.tables import SessionMessageRow
from server.domain.errors import Rejected
from server.domain.rounds import Abandon
from server.services.rounds import close
from server.services.secure_sum import exchanges, lists
from study_protocol.secure_sum.messages import KeysMessage, SessionParameters
from study_protocol.secure_sum.vectors import Values
from study_protocol.wire.tensors import encode
from tests.factories.joining import KeptSums, Site
from tests.factories.live_coordinator import Live, live
from tests.factories.settings import settings
from tests.factories.studies import FakeClock

pytestmark = pytest.mark.timeout(300)

STUDY = "sepsis"
NAMES = tuple(f"h{i}" for i in range(6))


class Greedy:
    """What the coordinator does beside its code: round n goes on without hospital n − 1, and its sum is `lost`."""

    def __init__(self, here: Live, monkeypatch: pytest.MonkeyPatch) -> None:
        self.here, self.kept = here, KeptSums(here, STUDY, monkeypatch)
        put, decided = exchanges.put, close._decided

        async def without_one(coordinator: Any, study: str, round: int, message: Any, *rest: Any, **more: Any) -> Any:
            if isinstance(message, KeysMessage) and message.client == NAMES[round - 1]:
                raise Rejected("round-closed", "not you")
            return await put(coordinator, study, round, message, *rest, **more)

        def lose(blobs: Any, due: Any) -> Any:
            # Read, and kept.
            outcome = decided(blobs, due)
            return outcome if due.collected.secure_sum.failure is not None else Abandon("updates-lost", charged=True)

        monkeypatch.setattr(api.exchanges, "put", without_one)
        monkeypatch.setattr(close, "_decided", lose)

    def keys(self, round: int) -> int:
        return self.here.coordinator.database.read(
            "count", lambda tx: tx.session.query(SessionMessageRow).filter_by(round=round, step="keys").count()
        )

    def rounds(self) -> list[dict[str, Any]]:
        return self.here.operator("GET", f"/v1/studies/{STUDY}/rounds").json()["rounds"]

    def resume(self) -> None:
        """After three rounds abandoned for one reason a study pauses by itself."""
        if self.here.operator("GET", f"/v1/studies/{STUDY}").json()["state"] == "paused":
            assert self.here.operator("POST", f"/v1/studies/{STUDY}/resume").is_success

    def play(self, clock: FakeClock, number: int) -> dict[str, Any]:
        """One round to its end."""
        end = time.monotonic() + 60
        while True:
            assert time.monotonic() < end, self.rounds()
            self.here.work()
            shown = self.rounds()
            if len(shown) < number:
                self.resume()
            if len(shown) >= number and shown[number - 1]["state"] != "collecting":
                clock.seconds += 61.0
                return shown[number - 1]
            if len(shown) == number and self.keys(number) == len(NAMES) - 1:
                view = lists.read_session(self.here.coordinator, STUDY, number)[1]
                if view.phase == "keys":
                    clock.seconds = float(SessionParameters.from_bytes(view.signed.parameters).deadlines.keys)
            time.sleep(0.02)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def here(tmp_path: Path, clock: FakeClock) -> Iterator[Live]:
    with live(tmp_path / "home", time_of_day=clock, long_poll_seconds=2.0) as coordinator:
        yield coordinator


@contextmanager
def taking_part(here: Live, tmp_path: Path, scheme: str, **policy: Any) -> Iterator[list[Site]]:
    """A study under way and its hospitals, which have ended when this does."""
    how = {"algorithm": "fedavg", "local_steps": 1, "learning_rate": 0.5}
    chosen = settings(scheme, masked=True, training=how, max_steps=8, sampling_rate=1.0)
    model = tasks.load(chosen.training.task, chosen.training.task_parameters).model()
    here.open_study(STUDY, chosen, model=False)
    assert here.operator("PUT", f"/v1/studies/{STUDY}/models/0", content=encode(weights_of(model))).status_code == 201
    made = [Site(here, tmp_path, name, **policy) for name in NAMES]
    for site in made:
        site.enrol()
    assert here.operator("POST", f"/v1/studies/{STUDY}/start").status_code == 200
    for site in made:
        site.start()
    yield made
    here.operator("POST", f"/v1/studies/{STUDY}/stop")
    for site in made:
        site.join(30)
        assert not site.is_alive()


@pytest.fixture
def sites(here: Live, tmp_path: Path) -> Iterator[list[Site]]:
    with taking_part(here, tmp_path, "client", unnoised_updates=True) as made:
        yield made


def attacked(greedy: Greedy, clock: FakeClock) -> dict[str, tuple[Values, Values]]:
    """By hospital: what six sums, each without another one, are solved for, and what it sent."""
    for number in range(1, len(NAMES) + 1):
        assert greedy.play(clock, number)["reason"] == "updates-lost"
    total = np.sum([greedy.kept.sums[number] for number in greedy.kept.sums], axis=0) / (len(NAMES) - 1)
    return {name: (total - greedy.kept.sums[i], greedy.kept.sent[name]) for i, name in enumerate(NAMES, 1)}


@pytest.mark.slow
def test_six_sums_without_another_hospital_each_would_show_every_update(
    here: Live, clock: FakeClock, sites: list[Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attack, on hospitals that do not check: what the check is for."""
    monkeypatch.setattr(checks, "check_may_be_summed_again", lambda opened, cohort: None)
    monkeypatch.setattr(checks, "check_is_summed_again", lambda opened, survivors: None)
    for solved, sent in attacked(Greedy(here, monkeypatch), clock).values():
        assert np.abs(sent).max() > 0.01
        assert np.abs(solved - sent).max() < 1e-4


@pytest.mark.slow
def test_six_sums_with_noise_in_shares_are_opened_and_show_nobody(
    here: Live, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each sum has five of the shares of which three are counted on: the errors have about the deviation of one noise.

    σ = 4 and five shares: s = 4√(5/3) in a sum, s√0.84 = 4.7 in what is solved for. Of 18 numbers, correlated, the root
    mean square is not below a third of that: false alarm below 1e-6 even of the 15 that are independent.
    """
    with taking_part(here, tmp_path, "client-distributed") as sites:
        found = attacked(Greedy(here, monkeypatch), clock)
    errors = np.concatenate([solved - sent for solved, sent in found.values()])
    assert np.sqrt(np.mean(errors**2)) > 4.7 / 3
    assert max(float(np.linalg.norm(sent)) for _, sent in found.values()) <= 1.0
    # Every opened sum was paid for, by whoever was in it.
    for number, site in enumerate(sites, 1):
        assert site.error is None
        assert site.charged(6) == [round for round in range(1, 7) if round != number]


@pytest.mark.slow
def test_the_second_sum_from_one_model_over_other_hospitals_is_refused_and_the_study_is_ended(
    here: Live, clock: FakeClock, sites: list[Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    greedy = Greedy(here, monkeypatch)
    assert greedy.play(clock, 1)["reason"] == "updates-lost"
    for number in (2, 3):
        shown = greedy.play(clock, number)
        assert (shown["state"], shown["reason"]) == ("abandoned", "same-model-again")
        # Who was left out may have asked once more, and says that its session is over.
        refusals = [one["refusal"] for one in shown["clients"] if one["refusal"] is not None]
        said = [refusal["detail"] for refusal in refusals if refusal["code"] == "same-model-again"]
        assert said
        assert all("its lead has to end the study (wardround study stop)" in detail for detail in said)
    assert list(greedy.kept.sums) == [1]
    assert here.operator("POST", f"/v1/studies/{STUDY}/stop").json()["stop_reason"] == "stopped"
    for site in sites:
        site.join(30)
        assert site.error is None
        assert site.outcome.reason == "stopped"
        # Refused before anything was paid.
        assert site.charged(3) == ([] if site.name == NAMES[0] else [1])
