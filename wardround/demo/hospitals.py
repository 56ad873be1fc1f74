"""The hospitals' processes. Where the study can do without one, a death is told, and it is started again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from wardround.demo.live import LiveHospital
from wardround.demo.processes import Process, Processes

END_SECONDS = 40.0
# The round after which --drop-out kills a hospital: by then everybody has settled in.
DROP_AFTER_ROUND = 2


@dataclass
class Joined:
    """Hospitals that train in one study.

    spare  how many may be missing; say: prints one line; drop_out: whether one is killed on purpose
    """

    study: str
    origin: str
    hospitals: Mapping[str, LiveHospital]
    processes: Processes
    spare: int
    say: Callable[[str], None]
    drop_out: bool = False
    running: dict[str, Process] = field(default_factory=dict[str, Process])

    def start(self, name: str) -> None:
        self.running[name] = self.hospitals[name].join(self.study, self.origin)

    def start_all(self) -> None:
        for name in self.hospitals:
            self.start(name)

    def check(self) -> None:
        """Tell of hospitals that have died, as long as the study can go on without them.

        Raises:
            ProcessFailed: some other process has died, or one hospital too many.
        """
        for name, process in list(self.running.items()):
            missing = len(self.hospitals) - len(self.running)
            if process.ended() not in (None, 0) and missing < self.spare:
                process.kill()
                self.processes.leave(process)
                del self.running[name]
                self.say(f"{name} has died. The round continues without it after its deadline")
        self.processes.check()

    def round_over(self, number: int) -> None:
        """Start again who has died; kill one if this is the moment for it."""
        self.check()
        for name in self.hospitals.keys() - self.running.keys():
            self.say(f"{name} starts again and continues with its own ledger")
            self.start(name)
        if self.drop_out and number == DROP_AFTER_ROUND:
            victim = list(self.hospitals)[-1]
            self.say(f"killing {victim}, as a power cut would")
            self.running[victim].popen.kill()

    def wait(self) -> None:
        """Until all have ended.

        Raises:
            ProcessFailed: one does not, or with an error.
        """
        for process in self.running.values():
            process.wait(END_SECONDS)
            process.check()
