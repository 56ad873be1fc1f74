"""Scheme client whose noise comes in shares of the hospitals, under masks, over real HTTP: three rounds.

In the second a hospital dies between its keys and its vectors, so that four of five are summed; in the third one dies
when its vectors have been sent, and goes on. Only the test knows what each hospital's update was.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load
from scipy import stats

from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from client_sdk.secure_sum import delivery
from private_learning.records import Table
from server.db.tables import SessionMessageRow, SessionRow
from server.services.secure_sum import lists
from study_protocol.secure_sum.messages import SessionParameters
from study_protocol.secure_sum.parameters import flatten
from study_protocol.study.certificate import SignedCertificate
from tests.e2e.test_queries_secrets import kept
from tests.factories import laws
from tests.factories.asking import NAMES, drive, enrolled
from tests.factories.dying import Killed
from tests.factories.joining import STUDY, KeptSums
from tests.factories.live_coordinator import Live, live
from tests.factories.settings import settings
from tests.factories.studies import FakeClock

pytestmark = pytest.mark.timeout(300)
WARDS = [str(number) for number in range(400)]
HOW = {
    "algorithm": "fedavg",
    "local_steps": 2,
    "learning_rate": 0.5,
    "task_parameters": {"label": "ill", "column.age": "0..100", "column.ward": "|".join(WARDS)},
}
MULTIPLIER, HONEST = 2.0, 3
Real = NDArray[np.float64]


def table(seed: int) -> Table:
    draw = np.random.default_rng(seed)
    age = draw.uniform(0, 100, 400)
    ward = draw.permutation(WARDS)
    ill = (age > 50).astype(float)
    return Table.of(
        {"age": age, "ward": ward, "ill": ill, "patient": [f"p{seed}-{i}" for i in range(400)]},
        patient_column="patient",
    )


class Words:
    """What every hospital's update was, rounded to the grid, and the words that it made of it, by round and name."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.exact: dict[tuple[int, str], Real] = {}
        self.made: dict[tuple[int, str], list[bytes]] = {}
        self.spacing = math.nan
        encoded = delivery.ring_vectors_of

        def watch(privacy: Any, model: Any, vectors: Any, made: Any, *rest: Any, **options: Any) -> Any:
            words = encoded(privacy, model, vectors, made, *rest, **options)
            at = options["randomness"].round, threading.current_thread().name
            self.spacing = 2.0 ** -vectors[0].scale_bits
            self.exact[at] = np.rint(flatten(made.update, model) / self.spacing)
            self.made.setdefault(at, []).append(words["update"].tobytes())
            return words

        monkeypatch.setattr(delivery, "ring_vectors_of", watch)

    def secrets(self) -> dict[bytes, str]:
        """Four coordinates of every sum without noise, of any hospitals in one round, as anything would write them."""
        found: dict[bytes, str] = {}
        for round in {round for round, _ in self.exact}:
            here = {name: exact for (number, name), exact in self.exact.items() if number == round}
            for size in range(1, len(here) + 1):
                for names in itertools.combinations(sorted(here), size):
                    total = np.sum([here[name] for name in names], axis=0)
                    place = int(np.argmax(np.abs(np.lib.stride_tricks.sliding_window_view(total, 4)).min(axis=1)))
                    four = total[place : place + 4]
                    assert np.abs(four).min() > 100
                    for kind in ("<i4", "<i8", "<f8"):
                        found[four.astype(kind).tobytes()] = f"round {round}: {names}"
                    for kind in ("<f4", "<f8"):
                        found[(four * self.spacing).astype(kind).tobytes()] = f"round {round}: {names}"
        return found


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def here(tmp_path: Path, clock: FakeClock) -> Iterator[Live]:
    with live(tmp_path / "home", time_of_day=clock, long_poll_seconds=0.2) as coordinator:
        yield coordinator


def sessions(here: Live) -> dict[int, list[str]]:
    """The survivors of every session."""
    return here.coordinator.database.read(
        "look", lambda tx: {row.round: list(row.survivors) for row in tx.session.query(SessionRow)}
    )


def pass_deadline(here: Live, clock: FakeClock, round: int) -> None:
    """Once four hospitals' vectors are there, nobody waits for the fifth."""
    count = here.coordinator.database.read(
        "count", lambda tx: tx.session.query(SessionMessageRow).filter_by(round=round, step="manifest").count()
    )
    if count == len(NAMES) - 1:
        view = lists.read_session(here.coordinator, STUDY, round)[1]
        if view.phase == "masked":
            clock.seconds = float(SessionParameters.from_bytes(view.signed.parameters).deadlines.masked)


@pytest.mark.slow
def test_rounds_release_the_mean_with_the_noise_that_is_stated_and_nobody_sees_less(
    here: Live, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = settings(
        "client-distributed", training=HOW, noise_multiplier=MULTIPLIER, sampling_rate=1.0,
        expected_batch_size=400.0, schedule={"round_deadline_seconds": 60.0},
    )  # fmt: skip
    words, sums, looked = Words(monkeypatch), KeptSums(here, STUDY, monkeypatch).sums, 0
    sites = enrolled(here, tmp_path, chosen, data=table, study=STUDY)
    victim, armed, died = sites[-1].name, dict[str, int](), list[str]()

    def die(name: str) -> None:
        if name in armed and threading.current_thread().name == victim:
            armed[name] -= 1
            if armed[name] == 0:
                del armed[name]
                died.append(name)
                raise Killed(name)

    def never_there() -> None:
        nonlocal looked
        secrets = words.secrets()
        for path, written in kept(here):
            looked += 1
            assert not [found for form, found in secrets.items() if form in written], path

    def killed() -> bool:
        if died:
            sites[-1].join(30)
        return bool(died)

    monkeypatch.setattr("client_sdk.secure_sum.round.failpoint", die)
    # The second round's keys are there when it dies; the first round passes the same place.
    armed["hospital.after-shares"] = 2
    for site in sites:
        site.start()
    drive(here, killed, sites=sites[:-1])
    assert died == ["hospital.after-shares"]

    def second_released() -> bool:
        never_there()
        pass_deadline(here, clock, 2)
        return 2 in sums

    drive(here, second_released, sites=sites[:-1])
    died.clear()
    armed["hospital.after-octets"] = 1
    sites[-1] = sites[-1].again()
    sites[-1].start()
    drive(here, killed, sites=sites[:-1])
    sites[-1] = sites[-1].again()
    sites[-1].start()

    def over() -> bool:
        never_there()
        return not any(site.is_alive() for site in sites)

    drive(here, over, sites=sites)
    assert looked > 100
    # What was looked for is what such a sum would have held.
    bare = np.sum([words.exact[1, name] for name in NAMES], axis=0)
    assert [form for form in words.secrets() if form in bare.astype("<i4").tobytes()]
    laws.check_ledger(laws.facts(here.coordinator))

    # Drawn once a round: whoever was killed after its words were kept sent the very same ones, and was taken.
    assert [len(words.made[3, name]) for name in NAMES] == [1] * 5
    survivors = sessions(here)
    assert {round: len(names) for round, names in survivors.items()} == {1: 5, 2: 4, 3: 5}
    noise = chosen.privacy.noise_of_updates(len(sums[1]))
    assert noise is not None
    models = [load(here.operator("GET", f"/v1/studies/{STUDY}/models/{round}").content) for round in range(4)]
    flat = [np.concatenate([model[name].ravel() for name in sorted(model)]).astype(np.float64) for model in models]
    for round, names in survivors.items():
        exact = np.sum([words.exact[round, name] for name in names], axis=0)
        found = (sums[round] / words.spacing - exact) * words.spacing
        # Σx²/s² over 400 coordinates; false alarm 1e-9 on either side.
        chi = float(found @ found) / noise.std_of(len(names)) ** 2
        assert 1e-9 < stats.chi2.cdf(chi, found.size) < 1 - 1e-9
        # And at least what is charged, at the same false alarm: more hospitals than are counted on only add.
        assert stats.chi2.cdf(float(found @ found) / (MULTIPLIER * chosen.privacy.clip_norm) ** 2, found.size) > 1e-9
        # The model moves by the noised mean, and by nothing else.
        moved = flat[round] - flat[round - 1]
        assert moved == pytest.approx(sums[round] / chosen.privacy.expected_clients, abs=1e-5)
    for site in sites:
        with HospitalLedger.open(ledger_path(site.directory, "icu"), read_only=True) as own:
            charges = own.charges()
        # Dying in round 2 came before anything was paid.
        assert len(charges) == (2 if site.name == victim else 3)
        assert {(c.level, c.noise_multiplier, c.sampling_rate, c.steps) for c in charges} == {
            ("client", MULTIPLIER, 1.0, 1)
        }
    issued = here.operator("GET", f"/v1/studies/{STUDY}/certificate").content
    certificate = SignedCertificate.model_validate_json(issued).certificate
    assert (certificate.mechanism.scheme, certificate.mechanism.noise_by) == ("client-distributed", "clients in shares")
    assert [level.relation for level in certificate.mechanism.levels] == ["zero-out"]
