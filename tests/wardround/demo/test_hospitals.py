"""Who may die in the demonstration, and who not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from wardround.demo.hospitals import DROP_AFTER_ROUND, Joined
from wardround.demo.processes import Process, Processes, ProcessFailed, environment


@dataclass
class Sleeper:
    """A hospital whose process only lives."""

    name: str
    folder: Path
    processes: Processes
    started: list[Process] = field(default_factory=list)

    def join(self, study: str, origin: str) -> Process:
        log = self.folder / f"{self.name}.log"
        self.started.append(self.processes.start(self.name, ["sleep", "300"], env=environment(), log=log))
        return self.started[-1]


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def joined(tmp_path: Path, said: list[str]) -> Iterator[Joined]:
    with Processes() as processes:
        hospitals: dict[str, Any] = {name: Sleeper(name, tmp_path, processes) for name in ("city", "rural", "island")}
        made = Joined("demo", "http://127.0.0.1:1", hospitals, processes, spare=1, say=said.append, drop_out=True)
        made.start_all()
        yield made


def _kill(joined: Joined, name: str) -> None:
    joined.running[name].popen.kill()
    joined.running[name].popen.wait()


def test_one_that_dies_is_told_of_and_comes_back(joined: Joined, said: list[str]) -> None:
    _kill(joined, "rural")
    joined.check()
    assert sorted(joined.running) == ["city", "island"]
    joined.round_over(1)
    assert joined.running["rural"].ended() is None
    assert [text.split()[0] for text in said] == ["rural", "rural"]


def test_one_too_many_ends_the_demonstration(joined: Joined) -> None:
    _kill(joined, "rural")
    joined.check()
    _kill(joined, "city")
    with pytest.raises(ProcessFailed, match="city ended with code -9"):
        joined.check()


def test_the_last_hospital_is_dropped_after_its_round(joined: Joined) -> None:
    for number in range(1, DROP_AFTER_ROUND):
        joined.round_over(number)
    assert all(process.ended() is None for process in joined.running.values())
    victim = joined.running["island"]
    joined.round_over(DROP_AFTER_ROUND)
    assert victim.wait(10) == -9
