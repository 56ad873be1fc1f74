"""Sessions as values: what is computed once is never out of date after a change."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import pytest

from server.domain.secure_sum_session import Session, changed
from tests.factories.secure_sum import Run, World, small_counts

COMPUTED = [name for name, value in vars(Session).items() if isinstance(value, cached_property)]


def at(step: str, lost: dict[str, set[str]] | None = None) -> Session:
    world = World(6)
    return Run(world, small_counts(world), lost or {}).upto(step).session


def same(one: Any, other: Any) -> bool:
    return bool(np.array_equal(one, other)) if isinstance(one, np.ndarray) else one == other


@pytest.fixture(scope="module")
def frozen() -> Session:
    """All sets are frozen: h001 sent no keys, h003 no vectors."""
    return at("unmask", {"keys": {"h001"}, "masked": {"h003"}})


CHANGES = {
    "parameters": lambda s: s.parameters.model_copy(update={"session": bytes(32)}),
    "keys": lambda s: dict(list(s.keys.items())[1:]),
    "shares": lambda _: {},
    "unmasks": lambda s: dict.fromkeys(s.survivors[:2]),
    "departed": lambda s: frozenset(s.survivors[:1]),
    "sharers": lambda s: s.sharers[1:],
    "survivors": lambda s: s.survivors[1:],
    "phase": lambda _: "failed",
    "failure": lambda _: "stopped",
}


@pytest.mark.parametrize("name", CHANGES)
def test_after_a_change_every_value_is_that_of_a_session_made_anew(frozen: Session, name: str) -> None:
    for computed in COMPUTED:
        getattr(frozen, computed)
    fields = {name: CHANGES[name](frozen)}
    moved, anew = changed(frozen, **fields), replace(frozen, **fields)
    for computed in COMPUTED:
        assert same(getattr(moved, computed), getattr(anew, computed)), computed


def test_what_a_change_leaves_as_it_is_is_not_computed_again(frozen: Session) -> None:
    graph, keys = frozen.graph, frozen.advertised_keys
    moved = changed(frozen, phase="failed", failure="stopped")
    assert moved.graph is graph
    assert moved.advertised_keys is keys
    # The session before it stays what it was.
    assert (frozen.phase, frozen.failure) == ("unmask", None)


def test_who_is_lost_shared_and_sent_no_vectors(frozen: Session) -> None:
    assert frozen.members == frozen.sharers == ("h000", "h002", "h003", "h004", "h005")
    assert (frozen.survivors, frozen.lost) == (("h000", "h002", "h004", "h005"), ("h003",))
    # Few hospitals are all neighbours of each other: everyone opens a share of everyone's secret.
    assert frozen.peers("h000") == frozen.sharers


def test_every_reply_counts_for_each_secret_that_it_opens_a_share_of(frozen: Session) -> None:
    assert frozen.replied.tolist() == [0] * 5
    world = World(6)
    run = Run(world, small_counts(world)).finish()
    # Five neighbours and the owner itself hold a share of every secret.
    assert run.session.replied.tolist() == [6] * 6
    assert changed(run.session, unmasks=dict(list(run.session.unmasks.items())[:2])).replied.tolist() == [2] * 6


def test_each_keys_message_advertises_two_keys() -> None:
    session = at("shares")
    keys = {key for entry in session.cohort for key in (entry.share_key, entry.mask_key)}
    assert session.advertised_keys == keys
    assert len(keys) == 12
