"""Authorise, then settle: a step's worst case, set aside before anything of it is computed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from accounting.costs import Step
from accounting.divergence import Direction, Values
from accounting.errors import InvalidArgument, ReservationClosed
from accounting.units import Relation

if TYPE_CHECKING:
    from accounting.bayesian import BayesianAccountant


class Reservation:
    """Used once: `settle` with what was measured, `stand` at the worst case, or `void`."""

    def __init__(self, accountant: BayesianAccountant, step: Step, steps: int) -> None:
        self._accountant, self._step, self._steps = accountant, step, steps

    @property
    def steps(self) -> int:
        return self._steps

    def epsilon(self) -> float:
        """ε of the accountant if this reservation stands."""
        return self._accountant._epsilon_of(self._accountant._ahead(self._step, self._steps))  # pyright: ignore[reportPrivateUsage]

    def settle(
        self,
        distances: Values,
        *,
        counts: Values | None = None,
        count_noise: float = 0.0,
        sample_size: int | None = None,
    ) -> bool:
        """Charge what the sample shows, never more than was reserved. False: the estimator refused, and it stands.

        On bad input the reservation stays open.
        """
        account = self._open()
        if self._steps != 1:
            raise InvalidArgument("steps", "a reservation of several steps stands, or is settled by observe")
        measured = account._measurement(distances, counts, count_noise, sample_size, self._step)  # pyright: ignore[reportPrivateUsage]
        return self._close(measured)

    def stand(self) -> None:
        """Charge the whole reservation."""
        self._open()
        self._close(None)

    def void(self) -> None:
        """Charge nothing: right only when nobody saw anything of the step."""
        self._open()._pending = None  # pyright: ignore[reportPrivateUsage]

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
    def restored(cls, accountant: BayesianAccountant, state: dict[str, Any]) -> Reservation:
        direction: Direction = state["direction"]
        step = Step(
            noise_std=state["noise_std"],
            sampling_rate=state["sampling_rate"],
            max_distance=state["max_distance"],
            relation=Relation(state["relation"]),
            direction=direction,
        )
        return cls(accountant, step, int(state["steps"]))

    def _open(self) -> BayesianAccountant:
        if self._accountant.pending is not self:
            raise ReservationClosed("this reservation is closed")
        return self._accountant

    def _close(self, measured: Any) -> bool:
        account = self._accountant
        estimated = account._charge(self._step, measured, reserved=True, steps=self._steps)  # pyright: ignore[reportPrivateUsage]
        account._pending = None  # pyright: ignore[reportPrivateUsage]
        return estimated
