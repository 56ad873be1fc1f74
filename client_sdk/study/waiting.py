"""The reason for a hospital's waiting, and since when: a hospital never waits in silence.

Counts only, as the coordinator shows them to every hospital. Names of others come from the roster.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from client_sdk.api.client import Client
from client_sdk.guard.policy import SitePolicy
from client_sdk.identity import Membership
from study_protocol.study.any_settings import AnySettings
from study_protocol.study.messages import AssignmentBody, BudgetStatement, Roster, SignedParameters, Study
from study_protocol.study.reasons import ANSWERING, QUESTIONS_FIRST, TAKES_QUESTIONS

_LOG = logging.getLogger(__name__)
# In a log, where nothing can renew itself: a change of words at most so often, and the same words again.
_CHANGED_SECONDS, _SAME_SECONDS = 30.0, 600.0
_REASON_ATTEMPTS = 5


@dataclass(frozen=True)
class Waiting:
    """One line. since: when the state in it began, or None where no beginning is known."""

    text: str
    since: datetime | None = None

    def line(self) -> str:
        """With its time, on this machine's clock."""
        return self.text if self.since is None else f"{self.text} (since {shown_time(self.since)})"


OnWait = Callable[[Waiting | None], None]


def shown_time(moment: datetime) -> str:
    """Return the time on this machine's clock, with the day only where it is another one."""
    local_time, now = moment.astimezone(), datetime.now(UTC).astimezone()
    return f"{local_time:%H:%M}" if local_time.date() == now.date() else f"{local_time:%Y-%m-%d %H:%M}"


def waiting_for(study: Study) -> Waiting:
    """Return what keeps the next round from being assigned to this hospital."""
    enrolled, min_clients = (
        f"{study.clients} of {study.invited} hospitals have enrolled",
        study.settings.schedule.min_clients,
    )
    match study.state:
        case "draft":
            return Waiting("the study is a draft: its lead has not uploaded the first model", study.state_since)
        case "enrolling" if study.clients < max(study.invited, min_clients):
            return Waiting(f"the study is enrolling: {enrolled}, a round needs {min_clients}", study.state_since)
        case "enrolling":
            return Waiting(f"the study is enrolling: {enrolled}, its lead has to start it", study.state_since)
        case "paused" if study.pause_reason is not None and study.pause_reason.code == QUESTIONS_FIRST:
            return Waiting("waiting for a question: training has not begun", study.state_since)
        case "paused":
            reason = "no reason is known" if study.pause_reason is None else study.pause_reason.detail
            return Waiting(
                f"the study is paused: {reason} (for its lead, nothing is to be done here)", study.state_since
            )
        case _:
            return _for_a_round(study, min_clients)


def _for_a_round(study: Study, min_clients: int) -> Waiting:
    now = study.under_way
    if now is not None:
        presence = "" if now.asked is None else f": {now.present} of {now.asked} hospitals present"
        return Waiting(f"round {now.round} is under way{presence}, updates are taken until {shown_time(now.deadline)}")
    if study.settings.rounds == 0:
        return Waiting("waiting for a query: this hospital has answered every query")
    if study.clients < min_clients:
        return Waiting(
            f"waiting for round {study.rounds + 1}: it needs {min_clients} hospitals, and {study.clients} take part"
        )
    if study.settings.statistics is not None:
        # When training is done, the study stays open for questions: what comes next cannot be known here.
        return Waiting(f"waiting for round {study.rounds + 1}, of training or for a query: nothing has begun")
    return Waiting(f"waiting for round {study.rounds + 1}: it is about to begin")


def unpinned(membership: Membership, roster: Roster) -> list[str]:
    """Return the members that take part now and are not, with this key, in the pinned roster."""
    pinned = {(member.client, member.public_key) for member in membership.pinned or ()}
    active = [member for member in roster.members if member.state == "active" and member.client != membership.client]
    return [member.client for member in active if (member.client, member.public_key) not in pinned]


def awaited(client: Client, membership: Membership, policy: SitePolicy, settings: AnySettings) -> Waiting:
    """Return what keeps this hospital from a round, as the coordinator shows it now."""
    received_study = client.study(membership.study)
    # Told now, since the round that finds it ends the participation.
    pause = received_study.pause_reason
    if (pause is None or pause.code in ANSWERING) and policy.needs_pin(settings):
        missing = unpinned(membership, client.roster(membership.study))
        if missing:
            return Waiting(_not_pinned(membership.study, missing))
    if (
        received_study.state == "running"
        and received_study.settings.rounds
        and received_study.settings.statistics is not None
        and client.budget(membership.study).takes_questions
    ):
        return Waiting(TAKES_QUESTIONS)
    return waiting_for(received_study)


def _not_pinned(study: str, missing: list[str]) -> str:
    return (
        f"the roster is not pinned: masked rounds need it, and {', '.join(missing)} enrolled or changed keys since. "
        f"Compare the number anew (wardround roster show {study}), pin it (wardround roster pin), and start join again"
    )


def last_statement(client: Client, study: str, pause_seconds: float) -> BudgetStatement:
    """Return the budget of a study in which no round can follow, with the reason of its end if that comes soon."""
    statement = client.budget(study)
    for _ in range(_REASON_ATTEMPTS):
        if statement.stop_reason is not None:
            break
        # The coordinator has not written the end down yet.
        client.sleep(pause_seconds)
        statement = client.budget(study)
    return statement


class Watch:
    """Tells `on_wait` of every change. Without one it tells the log, so that the log does not fill.

    clock  seconds that only grow
    """

    def __init__(self, on_wait: OnWait | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._tell, self._clock = on_wait or self._log, clock
        self._last: str = ""
        self._at = -math.inf
        self._away_since: datetime | None = None

    def waits(self, waiting: Waiting) -> None:
        """This is what is waited for now."""
        self._reached(waiting)

    def waits_for_others(self, assignment: AssignmentBody, session: SignedParameters | None) -> None:
        """The next step of a masked round needs the other hospitals."""
        if session is not None:
            until = shown_time(assignment.deadline)
            self._reached(
                Waiting(f"round {assignment.round}: waiting for the other hospitals, until {until} at the latest")
            )

    def goes_on(self) -> None:
        """Tell that the waiting is over."""
        self._reached(None)

    def unreachable(self, reason: str | None, pause: float) -> None:
        """Tell that the coordinator gave no answer and is asked again after `pause` seconds. None: it has answered."""
        if reason is None:
            self._reached(None)
            return
        self._away_since = self._away_since or datetime.now(UTC)
        next_try = f"trying again in {math.ceil(pause)} s" if pause >= 1 else "trying again"
        self._tell(Waiting(f"the coordinator is not reachable: {reason}, {next_try}", self._away_since))

    def _reached(self, waiting: Waiting | None) -> None:
        # A request that began while the coordinator was away may end with an error, and tells no end of the absence.
        self._away_since = None
        self._tell(waiting)

    def _log(self, waiting: Waiting | None) -> None:
        if waiting is None:
            return
        now, line = self._clock(), waiting.line()
        if now - self._at >= (_SAME_SECONDS if line == self._last else _CHANGED_SECONDS):
            self._last, self._at = line, now
            _LOG.info("%s", line)
