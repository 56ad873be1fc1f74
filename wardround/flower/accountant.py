"""Flower's privacy accountant, kept in a ledger.

Flower (1.42) asks an accountant `would_exceed` before a round's messages leave, and tells it `compose` after the noised
sum was made. Its own accountant lives in memory. This one reserves in the first call and settles in the second.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from client_sdk.errors import ConfigurationError, LedgerDamaged, OwnBudgetExceeded
from client_sdk.guard.charges import Charge
from wardround.flower.framework import FlowerEvent, flower
from wardround.flower.run_ledger import RunLedger, RunReservation
from wardround.flower.run_limit import charge_of

_BACKEND, _STATE_VERSION = "wardround-run-ledger", 1


@dataclass(frozen=True)
class PrivacySpent:
    """What was spent, with the fields of Flower's own type of this name."""

    epsilon: float
    delta: float
    num_releases: int
    accounting_method: str
    optimal_order: float | None


class LedgerAccountant:
    """An implementation of `flwr.serverapp.PrivacyAccountant` over a ledger of runs, at client level.

    Args:
        path: of the ledger. All runs on one population name the same file.
        epsilon, delta: the limit over all runs.
        population: how many clients there are, whichever are connected.
        sampling: no-amplification: every client may be in every round, the only one that Flower's strategies allow.
            poisson: clients are drawn by independent coins, and the ledger credits that.
        run: name of the run in the ledger. None: a new one.

    Raises:
        As `RunLedger`.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        epsilon: float,
        delta: float,
        population: int,
        sampling: Literal["no-amplification", "poisson"] = "no-amplification",
        run: str | None = None,
    ) -> None:
        if sampling not in ("no-amplification", "poisson"):
            raise ConfigurationError(
                "sampling: no-amplification or poisson. Draws without replacement protect against an exchange of two "
                "clients, which this ledger does not count"
            )
        self._is_sampled, self._population = sampling == "poisson", population
        rule = "renyi" if self._is_sampled else "gaussian"
        self.ledger = RunLedger(path, epsilon=epsilon, delta=delta, level="client", rule=rule)
        self.run = run or f"flower-{uuid.uuid4().hex[:12]}"
        self._reservation: RunReservation | None = None

    @property
    def config(self) -> Any:
        """Return Flower's `PrivacyConfig`. Its limit makes Flower ask before every round."""
        types = flower("flwr.serverapp")
        limit = self.ledger.limit
        method = types.SamplingMethod.POISSON if self._is_sampled else types.SamplingMethod.NO_AMPLIFICATION
        relation = types.NeighboringRelation.ADD_OR_REMOVE_ONE
        return types.PrivacyConfig(limit.delta, self._population, relation, method, limit.epsilon)

    @property
    def num_releases(self) -> int:
        """Return the releases that were charged, over all runs."""
        return sum(self.ledger.steps().values())

    def would_exceed(self, event: FlowerEvent, max_epsilon: float | None = None, count: int = 1) -> bool:
        """Return whether releases would pass the limit. If they would not, they are charged before this returns.

        Flower asks this once for a round, before a message of it leaves. A round that fails after this stays charged:
        the server has seen updates, and a later one is charged again.

        Args:
            event: the release.
            max_epsilon: a limit to compare with, without a charge.
            count: of equal releases.
        """
        charge = self._charge(event, count)
        if max_epsilon is not None:
            return not self.ledger.epsilon_after(charge) <= max_epsilon
        try:
            # Charged here and not in `compose`, which comes when updates were seen already.
            self._reservation = self.ledger.reserve(charge, self.run)
        except OwnBudgetExceeded:
            return True
        return False

    def compose(self, event: FlowerEvent, count: int = 1) -> None:
        """Settle the releases that `would_exceed` has charged. Others are charged now.

        Raises:
            OwnBudgetExceeded: they were not charged, and would pass the limit. They may not be released.
        """
        charge, reservation = self._charge(event, count), self._reservation
        if reservation is None or reservation.charge != charge:
            reservation = self.ledger.reserve(charge, self.run)
        self._reservation = None
        self.ledger.settle(reservation)

    def get_epsilon(self, delta: float) -> float:
        """Return ε of all runs at a delta."""
        return self.ledger.epsilon(delta)

    def get_delta(self, epsilon: float) -> float:
        """Return δ of all runs at an ε."""
        return self.ledger.delta(epsilon)

    def get_privacy_spent(self, delta: float | None = None) -> PrivacySpent:
        """Return what all runs have spent."""
        limit = self.ledger.limit
        target, method = limit.delta if delta is None else delta, f"{limit.rule} filter in {self.ledger.path.name}"
        return PrivacySpent(
            self.ledger.epsilon(target), target, self.num_releases, method, limit.order + 1 if limit.order else None
        )

    def state_dict(self) -> dict[str, object]:
        """Return the ledger's head as JSON. The ledger itself is the state."""
        sequence, sha256 = self.ledger.head()
        return {"schema_version": _STATE_VERSION, "backend": _BACKEND, "entries": sequence, "head": sha256}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Check that the ledger goes on from a state. No charge is set back, because what was spent stays spent.

        Raises:
            ConfigurationError: it is no state of such an accountant.
            LedgerDamaged: the ledger does not contain it. It is another one, or an older copy.
        """
        count = state.get("entries")
        if (state.get("schema_version"), state.get("backend")) != (_STATE_VERSION, _BACKEND) or type(count) is not int:
            raise ConfigurationError("this is no state of a LedgerAccountant")
        entries = self.ledger.entries()
        if not 1 <= count <= len(entries) or entries[count - 1].sha256 != state.get("head"):
            raise LedgerDamaged(
                f"{self.ledger.path} does not go on from entry {count} of this state: restore the ledger"
            )

    def _charge(self, event: FlowerEvent, count: int) -> Charge:
        if event.population_size != self._population:
            raise ConfigurationError(f"the event is of {event.population_size} clients, and not of {self._population}")
        # Flower draws a fixed number of clients. Only who asked for Poisson sampling is credited with a rate.
        rate = event.sample_size / event.population_size if self._is_sampled else 1.0
        return charge_of("client", event.noise_multiplier, rate, count)
