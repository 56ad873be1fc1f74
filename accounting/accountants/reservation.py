"""Authorise, then settle: a step's worst case, set aside before anything of it is computed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from accounting.accountants.costs import Measurement, Step
from accounting.errors import InvalidArgument, ReservationClosed
from accounting.mechanisms.divergence import Direction, Values
from accounting.units import Relation


class Charge(Protocol):
    """Charge `steps` steps that were reserved; False when nothing was estimated."""

    def __call__(self, step: Step, measured: Measurement | None, *, reserved: bool, steps: int) -> bool: ...


@dataclass(frozen=True)
class Desk:
    """What a reservation may ask of its accountant."""

    pending: Callable[[], Reservation | None]
    release: Callable[[], None]
    project: Callable[[Step, int], float]
    measure: Callable[[Values, Values | None, float, int | None, Step], Measurement | None]
    charge: Charge


class Reservation:
    """Used once: `settle` with what was measured, `charge_in_full` at the worst case, or `cancel`."""

    def __init__(self, desk: Desk, step: Step, steps: int) -> None:
        self._desk, self._step, self._steps = desk, step, steps

    @property
    def steps(self) -> int:
        return self._steps

    def epsilon(self) -> float:
        """ε of the accountant if this reservation is charged in full."""
        return self._desk.project(self._step, self._steps)

    def settle(
        self,
        distances: Values,
        *,
        counts: Values | None = None,
        count_noise: float = 0.0,
        sample_size: int | None = None,
    ) -> bool:
        """Charge what the sample shows, never more than was reserved. False: the estimator refused; all was charged.

        On bad input the reservation stays open.
        """
        self._check_open()
        if self._steps != 1:
            raise InvalidArgument("steps", "a reservation of several steps is charged in full, or settled by observe")
        return self._close(self._desk.measure(distances, counts, count_noise, sample_size, self._step))

    def charge_in_full(self) -> None:
        """Charge the whole reservation."""
        self._check_open()
        self._close(None)

    def cancel(self) -> None:
        """Charge nothing: right only when nobody saw anything of the step."""
        self._check_open()
        self._desk.release()

    def state(self) -> dict[str, Any]:
        step = self._step
        return {
            "noise_std": step.noise_std,
            "sampling_rate": step.sampling_rate,
            "max_distance": step.max_distance,
            "relation": str(step.relation),
            "direction": step.direction,
            "steps": self._steps,
        }

    @classmethod
    def restored(cls, desk: Desk, state: dict[str, Any]) -> Reservation:
        direction: Direction = state["direction"]
        step = Step(
            noise_std=state["noise_std"],
            sampling_rate=state["sampling_rate"],
            max_distance=state["max_distance"],
            relation=Relation(state["relation"]),
            direction=direction,
        )
        return cls(desk, step, int(state["steps"]))

    def _check_open(self) -> None:
        if self._desk.pending() is not self:
            raise ReservationClosed("this reservation is closed")

    def _close(self, measured: Measurement | None) -> bool:
        estimated = self._desk.charge(self._step, measured, reserved=True, steps=self._steps)
        self._desk.release()
        return estimated
