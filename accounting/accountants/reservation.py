"""Authorise, then settle: a step's worst case, set aside before anything of it is computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from accounting.accountants.costs import Measurement, Step
from accounting.encoding import fields_to_json
from accounting.errors import InvalidArgument
from accounting.mechanisms.divergence import Values
from accounting.units import Relation


class Reserving(Protocol):
    """The accountant that set the reservation aside."""

    def epsilon_after(self, step: Step, steps: int) -> float:
        """ε if these steps cost their worst case; nothing changes."""
        ...

    def close(self, reservation: Reservation, measured: Measurement | None, *, charge: bool) -> bool:
        """End its open reservation; False when it was charged in full. Raises before anything changes."""
        ...


@dataclass(frozen=True, eq=False)
class Reservation:
    """Used once: `settle` with what was measured, `charge_in_full` at the worst case, or `cancel`.

    steps  how many such steps are set aside

    Raises ReservationClosed when it is used again.

    >>> from accounting import BayesianAccountant, BayesianSpec
    >>> spec = BayesianSpec(orders=[4, 8], delta=1e-5, estimator_failure_probability=1e-6, max_steps=10,
    ...                     estimator="betting")
    >>> account = BayesianAccountant(spec)
    >>> reservation = account.reserve(noise_std=4.0, sampling_rate=0.1, max_distance=1.0)
    >>> worst = reservation.epsilon()
    >>> reservation.settle([0.1, 0.2, 0.4] * 50)
    True
    >>> account.epsilon() <= worst
    True
    """

    accountant: Reserving
    step: Step
    steps: int

    def epsilon(self) -> float:
        """ε of the accountant if this reservation is charged in full."""
        return self.accountant.epsilon_after(self.step, self.steps)

    def settle(
        self,
        distances: Values,
        *,
        counts: Values | None = None,
        count_noise: float = 0.0,
        sample_size: int | None = None,
    ) -> bool:
        """Charge what the sample shows, never more than was reserved; arguments as in `BayesianAccountant.step`.

        Returns False when the estimator refused, and all was charged. On bad input the reservation stays open.
        """
        if self.steps != 1:
            raise InvalidArgument("steps", "a reservation of several steps is charged in full, or settled by observe")
        top = self.step.max_distance
        measured = Measurement.of(distances, counts, count_noise, sample_size, max_distance=top)
        return self.accountant.close(self, measured, charge=True)

    def charge_in_full(self) -> None:
        """Charge the whole reservation."""
        self.accountant.close(self, None, charge=True)

    def cancel(self) -> None:
        """Charge nothing: right only when nobody saw anything of the step."""
        self.accountant.close(self, None, charge=False)

    def state(self) -> dict[str, Any]:
        """JSON-safe."""
        return {"step": fields_to_json(self.step), "steps": self.steps}

    @classmethod
    def restored(cls, accountant: Reserving, state: dict[str, Any]) -> Reservation:
        """The reservation whose `state` this was, on the accountant restored with it."""
        step = Step(**state["step"] | {"relation": Relation(state["step"]["relation"])})
        return cls(accountant, step, int(state["steps"]))
