"""The display of `wardround join`: rounds, the current wait, and a line of JSON for programs."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self, TextIO

from accounting.units import RUNNING_CONDITION
from client_sdk.study.waiting import Watch
from study_protocol.files.private import open_private
from study_protocol.study.limit_words import SHARE
from study_protocol.wire.printable_text import printable
from wardround.cli.shared.shared import number

if TYPE_CHECKING:
    from rich.console import Console

    from client_sdk.study.events import LimitSpent, OnRound, RoundEvent
    from client_sdk.study.waiting import Waiting

_LOG = logging.getLogger("client_sdk.study")


class RoundsShown:
    """A context that provides the callbacks `on_round` and `on_wait`.

    console  on a terminal, rounds and the current wait are drawn here, each in one line that is updated. Otherwise the
             log reports each wait
    events   file to which a line is appended and flushed after every round, with mode 0600 if it is new. None: no file

    Raises:
        OSError: the file cannot be written.
    """

    def __init__(self, study: str, console: Console, events: Path | None) -> None:
        from rich.live import Live
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        title, spent = (TextColumn(text, markup=False) for text in ("{task.description}", "{task.fields[spent]}"))
        columns = (title, BarColumn(), MofNCompleteColumn(), spent, TimeElapsedColumn())
        self._bar = Progress(*columns, console=console)
        self._task = self._bar.add_task(f"{study}: round", total=None, spent="")
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._rounds, self._waiting, self._explained = 0, None, False
        self._log = Watch()
        self._events, self._file, self._begun = events, None, False
        self._open = ExitStack()

    @property
    def listener(self) -> OnRound | None:
        """Return `on_round` if there is a terminal or an events file, otherwise None.

        Each event asks the coordinator for the budget once more, which is a third of a small round's bytes.
        """
        return None if self._live is None and self._events is None else self.on_round

    def on_round(self, event: RoundEvent) -> None:
        """Display a round after it was answered, and append it to the events file."""
        self._rounds += 1
        if not self._explained and any(limit.spent for limit in event.study_budget):
            # Not before a round is settled: until then no number needs an explanation.
            self._explained = True
            for line in first_words(event):
                _LOG.info("%s", line)
        self._bar.update(self._task, completed=event.round, total=event.rounds, spent=spent_line(event))
        self._draw()
        if self._file is not None:
            self._file.write(json.dumps(event.as_json(), allow_nan=False) + "\n")
            self._file.flush()

    def on_wait(self, waiting: Waiting | None) -> None:
        """Display the current wait. None: the wait is over."""
        self._waiting: Waiting | None = waiting
        if self._live is not None:
            self._draw()
        elif waiting is not None:
            self._log.waits(waiting)

    def _draw(self) -> None:
        from rich.console import Group
        from rich.text import Text

        if self._live is None:
            return
        if not self._begun:
            # Not before: until then a person may be asked something.
            self._begun = True
            self._open.enter_context(self._live)
        line = [] if self._waiting is None else [Text(printable(self._waiting.line()))]
        self._live.update(Group(*([self._bar] if self._rounds else []), *line), refresh=True)

    def __enter__(self) -> Self:
        if self._events is not None:
            self._file: TextIO | None = self._open.enter_context(_appended(self._events))
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()


def spent_line(event: RoundEvent) -> str:
    """Return the rounds left, then ε against the limits of the study, as stated to it, and of this hospital."""
    rounds_left = f"{event.rounds_left} {'round' if event.rounds_left == 1 else 'rounds'} left"
    part = SHARE if any(limit.takes_questions for limit in event.study_budget) else "budget"
    share = [] if event.spent_share is None else [f"{number(100 * event.spent_share, 0)} % of the {part} spent"]
    study = [_spent("", limit) for limit in event.study_budget]
    local_limits = [_spent("own ", limit, at_delta=_differs(event, limit)) for limit in event.local.own]
    return " · ".join([rounds_left, *share, "  ".join(["ε", *study, *local_limits])])


def first_words(event: RoundEvent) -> list[str]:
    """Return the explanations that follow the first line of numbers. They are shown once."""
    lines = [*_first_terms(event.study_budget), *_whole_plans(event.study_budget)]
    if any(_counts_otherwise(event, limit) for limit in event.local.own):
        lines.append(
            "the limits of this hospital (own) count all studies on these records, by a rule of their own. The "
            "study counts itself by another: the two ε of the same rounds differ, and both hold"
        )
    if any(_differs(event, limit) for limit in event.local.own):
        lines.append(
            "the limits of this hospital use another delta than the study. Two ε at different delta cannot be "
            "compared. To compare them, write the study's delta into policy.toml before the first round of a data set"
        )
    return lines


def _first_terms(limits: Iterable[LimitSpent]) -> list[str]:
    return [
        f"ε {limit.level} {limit.definition} begins at {number(limit.fixed_term)}: at a fixed order the conversion to "
        f"(ε, δ) has a fixed term, which the first round pays for all. Every further round adds less{_tight(limit)}"
        for limit in limits
        if limit.fixed_term is not None and limit.epsilon is not None
    ]


def _whole_plans(limits: Iterable[LimitSpent]) -> list[str]:
    return [
        f"ε {limit.level} {limit.definition}: {number(limit.spent)} holds whenever the study stops, from the first "
        f"round on, because it counts all steps and questions that may still come. So far {number(limit.tight)}, "
        f"{RUNNING_CONDITION}"
        for limit in limits
        if limit.progress is not None and limit.tight is not None
    ]


def _tight(limit: LimitSpent) -> str:
    if limit.tight is None or limit.spent is None:
        return ""
    return (
        f". So far {number(limit.spent)}. The privacy-loss distribution gives {number(limit.tight)}. It is tight and "
        "holds if the study ends for reasons that do not depend on its results"
    )


def _differs(event: RoundEvent, local_limit: LimitSpent) -> bool:
    """Return whether no limit of the study at this level has the same delta."""
    stated = [
        limit.delta for limit in event.study_budget if limit.level == local_limit.level and limit.delta is not None
    ]
    return bool(stated) and local_limit.delta not in stated


def _counts_otherwise(event: RoundEvent, local_limit: LimitSpent) -> bool:
    """Return whether the study states another ε at the same level and delta."""
    comparable = [
        limit for limit in event.study_budget if (limit.level, limit.delta) == (local_limit.level, local_limit.delta)
    ]
    stated = {number(limit.spent) for limit in comparable if limit.spent}
    return bool(local_limit.spent and stated) and number(local_limit.spent) not in stated


def _spent(prefix: str, limit: LimitSpent, *, at_delta: bool = False) -> str:
    if limit.epsilon is None:
        return f"{prefix}{limit.level} unbounded"
    tight = "" if limit.tight is None or limit.progress is not None else f" (tight {number(limit.tight)})"
    progress = "" if limit.progress is None else f", {limit.progress}"
    delta = f" at delta {limit.delta:g}" if at_delta else ""
    return f"{prefix}{limit.level} {limit.definition} {number(limit.spent)}/{limit.epsilon:g}{delta}{tight}{progress}"


def _appended(path: Path) -> TextIO:
    # `open` would leave the mode of a new file to the umask.
    return os.fdopen(open_private(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "a", encoding="utf-8")
