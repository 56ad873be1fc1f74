"""A running ε that is shown while the study goes on, and may be acted on."""

from __future__ import annotations

from typing import Any, Literal, Self

from accounting.accountants.classical import ClassicalAccountant
from accounting.errors import InvalidArgument, LimitExceeded
from accounting.mechanisms.conversion import largest_moment
from accounting.values import check_array, check_choice, check_delta, check_positive, order_or_alpha

Mode = Literal["checkpoints", "end-point"]


class Odometer:
    """The ε that may be shown during a run without the looking itself breaking the guarantee.

    checkpoints  checkpoint t is read at δ_t = δ/(t(t+1)), which sum to less than δ: all numbers shown hold together,
                 whenever the reader stops. With `order` fixed noise and sampling may adapt too. Without it the plan
                 is fixed and every checkpoint takes its best order.
    end-point    the filter: the number shown is `limit_epsilon` from the first step on. `allows` says whether the
                 next step still fits under it at the fixed order. One δ, no union.

    Raises InvalidArgument. `step` also LimitExceeded.

    >>> odometer = Odometer(delta=1e-5, order=8.0)
    >>> odometer.step(noise_multiplier=4.0, sampling_rate=0.1, count=10)
    >>> round(odometer.show(), 3)
    1.164
    >>> odometer.step(noise_multiplier=4.0, sampling_rate=0.1, count=10)
    >>> round(odometer.show(), 3)
    1.331
    """

    def __init__(
        self,
        *,
        delta: float,
        mode: Mode = "checkpoints",
        order: float | None = None,
        alpha: float | None = None,
        limit_epsilon: float | None = None,
    ) -> None:
        self.delta = check_delta(delta)
        self.mode: str = check_choice("mode", mode, ("checkpoints", "end-point"))
        if (limit_epsilon is None) != (self.mode == "checkpoints"):
            raise InvalidArgument("limit_epsilon", 'belongs to mode "end-point" and to it alone')
        self.order = order_or_alpha(order, alpha)
        if self.mode == "end-point" and self.order is None:
            raise InvalidArgument("order", "must be fixed before the first step in mode end-point")
        self.limit_epsilon = None if limit_epsilon is None else check_positive("limit_epsilon", limit_epsilon)
        if (
            self.order is not None
            and limit_epsilon is not None
            and largest_moment(self.order, limit_epsilon, delta) <= 0
        ):
            raise InvalidArgument("limit_epsilon", "leaves no room for any step at this order and delta")
        self._account = ClassicalAccountant(delta=self.delta, method="rdp", order=self.order)
        self._displayed: list[float] = []

    def __repr__(self) -> str:
        numbers = (
            f"delta={self.delta!r}, mode={self.mode!r}, order={self.order!r}, limit_epsilon={self.limit_epsilon!r}"
        )
        return f"Odometer({numbers}, steps={self._account.steps}, shown={self._displayed!r})"

    @property
    def checkpoints(self) -> tuple[float, ...]:
        """Return every ε shown so far. They hold simultaneously."""
        return tuple(self._displayed)

    def step(self, *, noise_multiplier: float, sampling_rate: float, count: int = 1) -> None:
        """Charge `count` steps. In mode end-point a step past the limit is refused, the odometer unchanged."""
        if self.limit_epsilon is not None and not self.allows(
            noise_multiplier=noise_multiplier, sampling_rate=sampling_rate, count=count
        ):
            raise LimitExceeded(f"{count} more steps would pass ε = {self.limit_epsilon!r} at order {self.order!r}")
        self._account.step(noise_multiplier=noise_multiplier, sampling_rate=sampling_rate, count=count)

    def allows(self, *, noise_multiplier: float, sampling_rate: float, count: int = 1) -> bool:
        """Whether `count` such steps fit under the limit. Always true in mode checkpoints."""
        after = self._account.epsilon_after(noise_multiplier=noise_multiplier, sampling_rate=sampling_rate, count=count)
        # Written so that NaN reads as passed.
        return self.limit_epsilon is None or after <= self.limit_epsilon

    def show(self) -> float:
        """Declare the next checkpoint and return its ε. In mode end-point the fixed limit."""
        if self.limit_epsilon is not None:
            displayed_epsilon = self.limit_epsilon if self._account.steps else 0.0
        else:
            t = len(self._displayed) + 1
            displayed_epsilon = self._account.epsilon_at(self.delta / (t * (t + 1)))
        self._displayed.append(displayed_epsilon)
        return displayed_epsilon

    def delta_for(self, epsilon: float) -> float:
        """Return δ at a given ε if the study stopped now, with no ε shown before: an account, not a checkpoint."""
        return self._account.delta_for(epsilon)

    def state(self) -> dict[str, Any]:
        """JSON-safe. `restore` of it goes on where this one is."""
        return {
            "delta": self.delta,
            "mode": self.mode,
            "order": self.order,
            "limit_epsilon": self.limit_epsilon,
            "account": self._account.state(),
            "shown": list(self._displayed),
        }

    @classmethod
    def restore(cls, state: dict[str, Any]) -> Self:
        """The odometer whose `state` this was."""
        names = ("delta", "mode", "order", "limit_epsilon")
        out = cls(**{name: state[name] for name in names})
        out._account = ClassicalAccountant.restore(state["account"])
        out._displayed = check_array("shown", state["shown"]).tolist() if state["shown"] else []
        return out
