"""What tests of a deviating coordinator share: a session up to some step, one hospital of it, and that it refuses."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from client_sdk.secure_sum.refusals import SecureSumRefused
from client_sdk.secure_sum.session import SecureSumClient
from tests.factories.secure_sum import ROUND, STUDY, Run, World, small_counts

ME = "h001"
# Every attack is tried where all six are neighbours, and on a ring.
GRAPHS = pytest.mark.parametrize("neighbours", [None, 4], ids=["complete", "ring"])
# On the ring of four neighbours that this makes, only h004 is none of mine.
_TAG = "ring 3"


def started(step: str, clients: int = 6, colluders: int = 1, neighbours: int | None = None) -> Run:
    world = World(clients, colluders, neighbours=neighbours, tag=_TAG)
    return Run(world, small_counts(world)).upto(step)


def me(run: Run) -> SecureSumClient:
    return run.hospital(ME)


def refuses(run: Run, attempt: Callable[[], object], code: str, words: str) -> None:
    store = run.world.hospitals[ME].store
    before = store.load(STUDY, ROUND)
    with pytest.raises(SecureSumRefused, match=words) as refused:
        attempt()
    assert refused.value.code == code
    assert store.load(STUDY, ROUND) == before
