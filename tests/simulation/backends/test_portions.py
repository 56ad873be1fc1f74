"""Portions of a round: every turn once, answers in their places, and the first client that stops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.domain.admission import Findings
from simulation.backends.base import UpdateLayout, WordSums
from simulation.backends.portions import Portion, PortionResult, collected, masks_updates, portions, take_portion
from simulation.local_work import Accounts, ClientStopped, ClientTask, Orders, Part
from tests.factories.settings import settings

ORDERS = Orders(1, {}, None, None, (), 1.0)


def tasks(count: int) -> list[ClientTask]:
    return [ClientTask(place, None, False) for place in range(count)]


@given(st.integers(0, 300), st.integers(1, 16))
def test_every_turn_is_in_one_portion_and_the_first_are_taken_first(count: int, workers: int) -> None:
    waiting = portions(tasks(count), workers)
    taken = [waiting.pop() for _ in range(len(waiting))]
    assert [slot for portion in taken for slot in portion.slots] == list(range(count))
    assert [task.place for portion in taken for task in portion.tasks] == list(range(count))
    assert len(taken) <= 8 * workers
    assert all(portion.slots for portion in taken)


class Work:
    """Every client's update is its place; the seventh stops."""

    def part(self, task: ClientTask, orders: Orders) -> Part:
        if task.place == 7:
            raise ClientStopped("h7", orders.round, "no records")
        update = {"update/a": np.full(2, task.place, np.float32)}
        return Part(
            update, Findings(float(task.place), None), {"n": np.ones(1, np.uint64)}, Accounts(b"%d" % task.place)
        )


def test_a_portion_writes_its_updates_into_its_rows_and_sums_its_words() -> None:
    work: Any = Work()
    sums, rows = WordSums(()), np.zeros((3, 2), np.float32)
    layout = UpdateLayout.of({"a": ((2,), "float32")})
    portion = Portion((4, 5, 6), (ClientTask(1, None, False), ClientTask(0, None, False), ClientTask(3, None, False)))
    result = take_portion(work, ORDERS, portion, sums, layout, rows)
    assert isinstance(result, PortionResult)
    assert result.slots == (4, 5, 6)
    assert rows[:, 0].tolist() == [1.0, 0.0, 3.0]
    assert sums.totals["n"].tolist() == [3]
    assert result.accounts == (b"1", b"0", b"3")
    stopped = take_portion(work, ORDERS, Portion((0,), (ClientTask(7, None, False),)), sums, layout, rows)
    assert isinstance(stopped, ClientStopped)
    assert stopped.client == "h7"


def test_portions_that_come_in_any_order_are_put_into_their_places() -> None:
    def result(*slots: int) -> PortionResult:
        findings = tuple(None if slot == 2 else Findings(float(slot), None) for slot in slots)
        return PortionResult(slots, findings, tuple(Accounts(b"%d" % slot) for slot in slots))

    done = collected(5, [result(3, 4), result(0, 1, 2)], [], WordSums(()))
    assert [findings.distance for findings in done.findings] == [0.0, 1.0, 3.0, 4.0]
    assert done.accounts == (b"0", b"1", b"2", b"3", b"4")


@pytest.mark.parametrize(
    ("options", "masked"),
    [
        ({}, False),
        ({"masked": True}, True),
        ({"masked": True, "mask_updates": False}, False),
    ],
    ids=["clear", "masked", "costs-alone"],
)
def test_updates_are_masked_where_the_settings_say_so(options: dict[str, Any], masked: bool) -> None:
    chosen = dict(options)
    if "mask_updates" in chosen:
        del chosen["mask_updates"]
        values = settings(bayesian=True, **chosen).as_json()
        values["privacy"]["masking"]["mask_updates"] = False
        assert masks_updates(type(settings()).model_validate(values)) is masked
        return
    assert masks_updates(settings(**chosen)) is masked
