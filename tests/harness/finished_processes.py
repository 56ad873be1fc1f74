"""Forked processes whose hospitals note every finished body, for the laws of `tests.harness.byte_laws`."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tests.harness.forked import ForkedProcesses, become_wardround

# Left by no process before its end.
_FOR_LIFE = ExitStack()


def become(arguments: list[str], env: dict[str, str], log: str) -> None:
    """Run the command `wardround` in this process, a fork, and note what it finishes."""
    # Not at the top: it loads what the process that forks is to have loaded itself.
    from tests.harness.byte_laws import keeping_finished

    _FOR_LIFE.enter_context(keeping_finished())
    if "join" in arguments and "WARDROUND_FAILPOINT" in env:
        _lose_what_is_not_synced(Path(env["WARDROUND_CLIENT_HOME"]), env["WARDROUND_FAILPOINT"])
    become_wardround(arguments, env, log)


def _lose_what_is_not_synced(home: Path, seed: str) -> None:
    """Where this process dies at its failpoint, it leaves what a power cut would leave of the hospital's directory."""
    from study_protocol.wire import failpoints
    from tests.harness.power import WatchedDisk, watched

    disk, die = WatchedDisk(home), failpoints._die

    def cut(name: str) -> None:
        disk.cut(random.Random(seed))
        die(name)

    failpoints._die = cut
    _FOR_LIFE.enter_context(watched(disk))


class FinishedProcesses(ForkedProcesses):
    """As `ForkedProcesses`."""

    become: Callable[[list[str], dict[str, str], str], None] = staticmethod(become)
