"""What `wardround join` shows while rounds pass by: a bar with ε for a person, a line of JSON for a program."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self, TextIO

from client_sdk.commands.shared import number

if TYPE_CHECKING:
    from rich.console import Console

    from client_sdk.study.events import LimitSpent, RoundEvent


class RoundsShown:
    """A context in which `on_round` may be called.

    console  the bar is drawn here if it is a terminal
    events   file that a line is appended to after every round, flushed, mode 0600 if it is new; None: no file

    Raises:
        OSError: the file cannot be written.
    """

    def __init__(self, study: str, console: Console, events: Path | None) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        title, spent = (TextColumn(text, markup=False) for text in ("{task.description}", "{task.fields[spent]}"))
        columns = (title, BarColumn(), MofNCompleteColumn(), spent, TimeElapsedColumn())
        self._bar = Progress(*columns, console=console, disable=not console.is_terminal)
        self._task = self._bar.add_task(f"{study}: round", total=None, spent="")
        self._events, self._file, self._begun = events, None, False
        self._open = ExitStack()

    def on_round(self, event: RoundEvent) -> None:
        """After every round that was answered."""
        if not self._begun:
            # Not before: until then a person may be asked something.
            self._begun = True
            self._open.enter_context(self._bar)
        self._bar.update(self._task, completed=event.round, total=event.rounds, spent=spent_line(event))
        if self._file is not None:
            self._file.write(json.dumps(event.as_json(), allow_nan=False) + "\n")
            self._file.flush()

    def __enter__(self) -> Self:
        if self._events is not None:
            self._file: TextIO | None = self._open.enter_context(_appended(self._events))
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()


def spent_line(event: RoundEvent) -> str:
    """ε spent against the limit: the study's as the coordinator states them, then this hospital's own."""
    study = [_spent("", limit) for limit in event.study_budget]
    return "  ".join(["ε", *study, *(_spent("own ", limit) for limit in event.local.own)])


def _spent(whose: str, limit: LimitSpent) -> str:
    if limit.epsilon is None:
        return f"{whose}{limit.level} unbounded"
    spent = number(limit.spent)
    return f"{whose}{limit.level} {limit.definition} {spent}/{limit.epsilon:g}"


def _appended(path: Path) -> TextIO:
    # Made first: `open` would leave a new file's mode to the umask.
    path.touch(mode=0o600)
    return path.open("a", encoding="utf-8")
