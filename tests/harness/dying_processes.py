"""A coordinator and hospitals in processes that are told at which failpoint to die, and a log of the deaths."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from study_protocol.wire.failpoints import EXIT_CODE
from tests.harness import tiny
from tests.harness.object_store import ObjectStore
from wardround.demo.live import LiveCoordinator
from wardround.demo.processes import Process, Processes, ProcessFailed

# Many processes on few cores: generous, because a slow machine is no failure.
HIT_SECONDS = 150.0
# The next worker waits for the dead one's lease: not longer than a test has to.
LEASE_SECONDS = "0.5"
# Passed in rounds with a secure sum only.
MASKED = {
    *(f"worker.{side}-{point}" for side in ("before", "after") for point in ("advance", "sum", "sum-files")),
    *(f"api.{point}" for point in ("before-octets-file", "after-octets-file", "after-octets-commit")),
    *(f"api.{side}-session-message" for side in ("before", "after")),
    *(f"hospital.after-{point}" for point in ("keys", "shares", "octets", "consistency", "unmask")),
}


class Stage:
    """`sizes`: name of each hospital and how many patients it has. `joined` holds its latest process."""

    def __init__(
        self,
        folder: Path,
        database_url: str | None,
        processes: Processes,
        sizes: Mapping[str, int],
        store: ObjectStore | None = None,
    ) -> None:
        self.folder, self.processes, self.store = folder, processes, store
        self.bucket = "" if store is None else store.bucket()
        settings = {} if store is None else store.settings(self.bucket)
        self.coordinator = LiveCoordinator(
            folder / "coordinator", processes, database_url=database_url, settings=settings
        )
        self.starts = 0
        self.hits = folder / "hits.log"
        self.hospitals = tiny.hospitals(folder / "hospitals", sizes, processes)
        self.joined: dict[str, Process] = {}

    def hit(self) -> list[str]:
        return self.hits.read_text().split() if self.hits.exists() else []

    def serve(self, failpoint: str | None = None) -> Process:
        """Start the coordinator, to die at `failpoint`. Before an object store it has nothing of the one that died."""
        self.starts += 1
        cache = None if self.store is None else self.folder / f"cache-{self.starts}"
        return self.coordinator.start(lease_seconds=LEASE_SECONDS, blobs_cache=cache, **self._until(failpoint))

    def stop_coordinator(self) -> None:
        assert self.coordinator.process is not None
        self.coordinator.process.kill()

    def join(self, name: str, study: str, failpoint: str | None = None) -> Process:
        """Start the hospital, to die at `failpoint`."""
        hospital = self.hospitals[name]
        self.joined[name] = hospital.join(study, self.coordinator.origin, **self._until(failpoint))
        return self.joined[name]

    def wait_dead(self, process: Process, failpoint: str) -> None:
        code = process.wait(HIT_SECONDS)
        # Both: a process that fails for another reason must not pass for one that was killed.
        if code != EXIT_CODE or failpoint not in self.hit():
            raise ProcessFailed(f"{process.name} was to die at {failpoint}; it", code, process.log)

    def _until(self, failpoint: str | None) -> dict[str, str | Path]:
        return {} if failpoint is None else {"failpoint": failpoint, "failpoint_log": self.hits}
