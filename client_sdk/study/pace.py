"""When a hospital's answer leaves: at a multiple of its slot, so that no time tells how many patients it has."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from datetime import datetime

from client_sdk.api.client import Client, ServerClock
from client_sdk.errors import ConfigurationError
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.study.waiting import Waiting
from study_protocol.study.any_settings import AnySettings
from study_protocol.study.slots import PATIENTS_PER_SECOND, planned_slot, slot_for

_LOG = logging.getLogger(__name__)


class Pace:
    """One hospital's slot in one study.

    A message whose time depends on the records is sent at a multiple of the slot, counted from the coordinator's last
    answer. The coordinator knows what came before that, and no record was looked at.

    slot    seconds. None: the study has no slots, and no message waits
    say     told what is waited for
    waited  seconds that were waited since `begin`
    """

    def __init__(self, client: Client, slot: float | None, say: Callable[[Waiting], None]) -> None:
        self._client, self.slot, self._say = client, slot, say
        self.waited = 0.0

    def begin(self) -> None:
        """A new round: its waits are counted anew."""
        self.waited = 0.0

    def ends_by(self, seconds: float) -> bool:
        """Whether a slot that begins now has ended in so many seconds."""
        return self.slot is None or self.slot < seconds

    def lateness(self, deadline: datetime, round_seconds: float) -> str | None:
        """Return why an answer would leave after the round's deadline, or None if it would not.

        round_seconds  the longest that a round lasts
        """
        seconds_left = deadline.timestamp() - self._client.clock.read()
        if seconds_left <= 0:
            return too_late(self._client.clock)
        if self.ends_by(min(seconds_left, round_seconds)):
            return None
        return f"the slot of {self.slot:g} s ends after its deadline, nothing is charged"

    def wait(self, subject: str, since: float | None = None) -> None:
        """Sleep until the next multiple.

        subject  what is about to leave, for this hospital's own screen
        since    where the multiples are counted from, as `clock.elapsed`. None: the coordinator's last answer
        """
        if self.slot is None:
            return
        elapsed = max(0.0, self._client.clock.elapsed() - (self._client.answered_at if since is None else since))
        slots = math.floor(elapsed / self.slot) + 1
        pause = slots * self.slot - elapsed
        if slots > 1 and since is None:
            # Never sent: the coordinator learns the multiple from the time alone.
            _LOG.warning(
                "%s took %.1f s, and the slot here is %g s: sent after %d slots. From that an observer learns about "
                "how many patients this hospital has. Declare a longer slot: stop join and start it with --slot",
                subject,
                elapsed,
                self.slot,
                slots,
            )
        if pause >= 1:
            self._say(Waiting(f"{subject}: ready, sent in {math.ceil(pause)} s, at the slot of {self.slot:g} s"))
        self.waited += pause
        self._client.sleep(pause)


def too_late(clock: ServerClock) -> str:
    """Return why a round is passed whose deadline is over. It goes by this machine's clock, which may be wrong."""
    late = "its deadline has passed, nothing is charged"
    if abs(clock.offset) < 1:
        return late
    direction = "ahead of" if clock.offset < 0 else "behind"
    return f"{late}. This machine's clock is {abs(clock.offset):.0f} s {direction} the coordinator's: set it"


def chosen_slot(
    settings: AnySettings, ledger: HospitalLedger, study: str, requested_seconds: float | None
) -> float | None:
    """The slot of this hospital's answers: as wanted, else as declared before, else as the study plans. None: no slots.

    Raises:
        ConfigurationError: the study has no such slot.
    """
    slots = settings.schedule.slots or ()
    if requested_seconds is not None and requested_seconds not in slots:
        listed = ", ".join(f"{slot:g}" for slot in slots) or "none"
        raise ConfigurationError(
            f"slot {requested_seconds:g}: the study's slots in seconds are {listed} (schedule.slots)"
        )
    return requested_seconds or ledger.slot(study) or planned_slot(settings)


def warn_of_slot(settings: AnySettings, slot: float, records: int) -> None:
    """For this hospital alone: how its slot fits its own records, and the round."""
    deadline = settings.schedule.round_deadline_seconds
    if slot >= deadline:
        _LOG.warning(
            "the slot of %g s does not fit into the round's deadline of %g s: this hospital answers no round. Choose a "
            "shorter one (--slot), or ask the study for a longer deadline (schedule.round_deadline_seconds)",
            slot,
            deadline,
        )
    proposed = slot_for(records, settings.schedule.slots or ())
    if proposed is not None and proposed > slot:
        _LOG.warning(
            "the slot of %g s is meant for %d patients, and here are more: an answer that takes longer is sent at a "
            "later multiple, which tells about how many. Declare a longer one: join --slot %g",
            slot,
            slot * PATIENTS_PER_SECOND,
            proposed,
        )
