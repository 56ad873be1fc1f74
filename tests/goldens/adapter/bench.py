"""One process's bench: one database, one thread, and randomness from the study's name."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from threadpoolctl import threadpool_limits

from accounting.mechanisms import run_losses
from accounting.mechanisms.unsampled import Steps
from server.db.file_blobs import FileBlobs
from server.db.schema import migrate
from server.db.session import Database
from server.services.coordinator import Coordinator
from server.signing_key import SigningKey
from study_protocol.randomness.discrete_gaussian import DiscreteGaussianNoise
from study_protocol.randomness.source import AddressedCoins, SeededRandomness
from tests.factories.studies import FakeClock
from tests.goldens.adapter.settings import settings_of
from tests.goldens.adapter.study import NOW, Study
from tests.goldens.combinations import Combination


class Bench:
    """One database and one folder of files for any number of studies, each run once."""

    def __init__(self, folder: Path) -> None:
        self._open = ExitStack()
        for entered in (_one_thread(), _without_warnings(), _remembered_privacy_losses()):
            self._open.enter_context(entered)
        self._database = Database(f"sqlite:///{folder / 'goldens.db'}", clock=FakeClock(NOW))
        self._blobs = FileBlobs(folder / "blobs")
        self._open.callback(self._database.dispose)
        migrate(self._database.engine)

    def close(self) -> None:
        """Leave the process as it was."""
        self._open.close()

    def run(self, chosen: Combination) -> dict[str, Any]:
        """Everything that the study of these choices shows, in the goldens' words."""
        digest = hashlib.sha256(str(chosen).encode()).digest()
        randomness = SeededRandomness(int.from_bytes(digest[:6]), allow_insecure=True)
        coordinator = Coordinator(
            database=self._database,
            blobs=self._blobs,
            coins=AddressedCoins(randomness),
            noise=DiscreteGaussianNoise(randomness),
            signer=SigningKey(Ed25519PrivateKey.from_private_bytes(bytes(range(32)))),
            origin="https://study.example.org",
        )
        return Study(coordinator, f"g{digest.hex()[:12]}", settings_of(chosen), randomness).run()


@contextmanager
def _one_thread() -> Iterator[None]:
    """Sums in another order have other last bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with threadpool_limits(1):
        yield
    torch.set_num_threads(before)


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Seeded randomness announces itself; here it is what is wanted."""
    logger = logging.getLogger(SeededRandomness.__module__)
    before = logger.level
    logger.setLevel(logging.ERROR)
    yield
    logger.setLevel(before)


@contextmanager
def _remembered_privacy_losses() -> Iterator[None]:
    """Compositions of privacy losses cost more than all the rest of a study, and many studies ask for the same one."""
    computed = run_losses.composed_epsilon

    @cache
    def once(steps: tuple[Steps, ...], delta: float, guess: float) -> float:
        return computed(steps, delta, guess)

    def epsilon(steps: Sequence[Steps], delta: float, guess: float) -> float:
        return once(tuple(steps), delta, guess)

    run_losses.composed_epsilon = epsilon
    yield
    run_losses.composed_epsilon = computed
