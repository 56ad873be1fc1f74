"""A round's turns in portions, and what a worker does with one: the same in a forked process and on a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from client_sdk.errors import WardroundError
from server.domain.admission import Findings
from simulation.backends.base import Done, UpdateLayout, WordSums
from simulation.local_work import Accounts, ClientStopped, ClientTask, LocalWork, Orders
from study_protocol.study.settings import StudySettings
from study_protocol.wire.tensor_files import ReadableTensors

# Portions a worker and round: the last ones are short, so that no worker waits long for another.
_PORTIONS = 8
Slots = NDArray[np.float32]


class WorkerLost(WardroundError):
    """A process ended that should not have."""


@dataclass(frozen=True)
class Portion:
    """Turns to take, and their places in the round."""

    slots: tuple[int, ...]
    tasks: tuple[ClientTask, ...]


@dataclass(frozen=True)
class PortionResult:
    """The results of a portion's clients, beside updates and words."""

    slots: tuple[int, ...]
    findings: tuple[Findings | None, ...]
    accounts: tuple[Accounts | None, ...]


def portions(tasks: Sequence[ClientTask], workers: int) -> list[Portion]:
    """In order, to be taken from the end."""
    size = max(1, -(-len(tasks) // (workers * _PORTIONS)))
    starts = range(0, len(tasks), size)
    result = [Portion(tuple(range(a, min(a + size, len(tasks)))), tuple(tasks[a : a + size])) for a in starts]
    return result[::-1]


def take_portion(
    work: LocalWork,
    orders: Orders,
    portion: Portion,
    sums: WordSums,
    layout: UpdateLayout,
    rows: Sequence[Slots] | Slots | None,
) -> PortionResult | ClientStopped:
    """Take every turn of a portion. Words go into `sums`. rows: of each turn (coordinates,), to write its update
    into."""
    findings: list[Findings | None] = []
    accounts: list[Accounts | None] = []
    for turn, task in enumerate(portion.tasks):
        try:
            part = sums.take(work.part(task, orders))
        except ClientStopped as stopped:
            return stopped
        if part.update is not None and rows is not None:
            layout.write(part.update, rows[turn])
        findings.append(part.findings)
        accounts.append(part.accounts)
    return PortionResult(portion.slots, tuple(findings), tuple(accounts))


def collected(turns: int, results: Iterable[PortionResult], updates: Sequence[ReadableTensors], sums: WordSums) -> Done:
    """A round's portions, which may come in any order, as one answer."""
    findings: list[Findings | None] = [None] * turns
    accounts: list[Accounts | None] = [None] * turns
    for result in results:
        for slot, client_findings, account in zip(result.slots, result.findings, result.accounts, strict=True):
            findings[slot], accounts[slot] = client_findings, account
    clear = tuple(result for result in findings if result is not None)
    return Done(updates, clear, sums.totals, tuple(accounts))


def masks_updates(settings: StudySettings) -> bool:
    """Whether updates are summed as words, so that none comes back by itself."""
    masking = settings.privacy.masking
    return masking is not None and masking.mask_updates
