"""The plainest backend, sums of words in the ring, and parameters in a flat array."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from server.domain.admission import Findings
from simulation.backends.base import FlatUpdate, Loop, UpdateLayout, WordSums
from simulation.local_work import Accounts, ClientStopped, ClientTask, Orders, Part

ORDERS = Orders(1, {}, None, None, (), 1.0)
SPEC = {"weight": ((2, 3), "float32"), "bias": ((2,), "float32")}


class Work:
    """Every client's update is its place."""

    def part(self, task: ClientTask, orders: Orders) -> Part:
        if task.place == 9:
            raise ClientStopped("h9", orders.round, "no records")
        words = {"counts": np.array([task.place, 1], np.uint64)}
        update = {"update/weight": np.full(2, task.place, np.float32)}
        return Part(update, Findings(float(task.place), None), words, Accounts(b"%d" % task.place))


def test_clients_are_run_one_after_the_other_in_their_order() -> None:
    work: Any = Work()
    done = Loop(work).run(ORDERS, [ClientTask(place, None, False) for place in (2, 0, 5)])
    assert [update.piece("update/weight", 0, 1)[0] for update in done.updates] == [2.0, 0.0, 5.0]
    assert [findings.distance for findings in done.findings] == [2.0, 0.0, 5.0]
    assert done.accounts == (b"2", b"0", b"5")
    assert done.sums["counts"].tolist() == [7, 3]
    with pytest.raises(ClientStopped, match="h9"):
        Loop(work).run(ORDERS, [ClientTask(9, None, False)])


@pytest.mark.parametrize(("dtype", "bits"), [(np.uint32, 32), (np.uint64, 64)])
def test_words_are_added_as_the_ring_adds_them(dtype: type, bits: int) -> None:
    draw = np.random.default_rng(1)
    words = [draw.integers(0, 1 << 32, 5, dtype=np.uint64).astype(dtype) * dtype(3) for _ in range(40)]
    sums, reverse = WordSums(()), WordSums(())
    for vector in words:
        sums.add({"update": vector})
    for vector in reversed(words):
        reverse.add({"update": vector})
    exact = [sum(int(vector[place]) for vector in words) % (1 << bits) for place in range(5)]
    assert sums.totals["update"].tolist() == reverse.totals["update"].tolist() == exact


def test_a_sum_leaves_the_words_of_the_first_client_as_they_were() -> None:
    sums, first = WordSums(()), np.array([1, 2], np.uint64)
    sums.add({"a": first})
    sums.add({"a": first, "b": first})
    assert first.tolist() == [1, 2]
    assert {name: words.tolist() for name, words in sums.totals.items()} == {"a": [2, 4], "b": [1, 2]}


def test_parameters_lie_in_the_order_of_their_names() -> None:
    layout = UpdateLayout.of(SPEC)
    assert (layout.size, dict(layout.starts)) == (8, {"update/bias": 0, "update/weight": 2})
    row = np.zeros(8, np.float32)
    weight = np.arange(6, dtype=np.float32).reshape(2, 3)
    layout.write({"update/weight": weight, "update/bias": np.array([8, 9], np.float32), "other": weight}, row)
    assert row.tolist() == [8.0, 9.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    (update,) = layout.updates([row])
    assert isinstance(update, FlatUpdate)
    assert dict(update.spec) == {"update/bias": ((2,), "float32"), "update/weight": ((2, 3), "float32")}
    assert update.piece("update/weight", 1, 3).tolist() == [1.0, 2.0]
