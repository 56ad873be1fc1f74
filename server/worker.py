"""Moves rounds on: one study at a time under a lease, every commit fenced."""

from __future__ import annotations

from server.services.ports import Coordinator


class Worker:
    """Any number may run, in threads or processes; killing one at any moment loses nothing."""

    def __init__(self, coordinator: Coordinator, *, poll_seconds: float = 0.2, lease_seconds: float = 60.0) -> None:
        raise NotImplementedError

    def run(self) -> None:
        """Work until `stop`. Blocks: give it a thread or a process."""
        raise NotImplementedError

    def step(self) -> bool:
        """Move every study that is due one step on; False when there was nothing to do."""
        raise NotImplementedError

    def wake(self) -> None:
        """Something arrived: look now rather than at the next poll. Safe from any thread."""
        raise NotImplementedError

    def stop(self) -> None:
        """Finish the step under way and return from `run`. Safe from any thread."""
        raise NotImplementedError
