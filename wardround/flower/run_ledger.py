"""The ledger of runs: what was released from one population, over all runs and processes that name the same file.

A release is charged before it is made, and its charge is never given back. So a process may die at any moment, and the
next one goes on from at least what was spent.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from accounting.budget.ledger import Entry
from client_sdk.errors import ConfigurationError, OwnBudgetExceeded
from client_sdk.guard.charges import Charge
from client_sdk.guard.limit_terms import LimitRule
from study_protocol.study.limits import LevelName
from study_protocol.wire.failpoints import failpoint, register
from wardround.flower.run_limit import (
    LIMIT,
    body_of,
    charge_of,
    delta_of,
    epsilon_of,
    head_of,
    in_words,
    limit_in,
    limit_of,
    steps_in,
    steps_of,
)
from wardround.flower.shared_chain import SharedChain

register("run-ledger.before-reserved", "run-ledger.after-reserved", "run-ledger.after-settled")


@dataclass(frozen=True)
class RunReservation:
    """A charge that stands in the ledger.

    run     the name of the run
    number  of the charge within its run, from 1
    """

    run: str
    number: int
    charge: Charge


class RunLedger:
    """A budget of one population in one file.

    Args:
        path: of the file. A missing one is created.
        epsilon, delta: the limit, which the first process fixes for ever.
        level: client, the unit is a hospital, or instance, the unit is a record.
        rule: gaussian: a filter on Σ 1/σ² (Smith & Thakurta 2022), without credit for sampling. renyi: a filter at one
            Rényi order (Feldman & Zrnic 2021), with credit for Poisson sampling. Both hold where the noise, the number
            of steps and the moment of the last one depend on what was released before.
        order: the moment order λ of rule renyi, fixed with the limit. None: 2 ln(1/δ) / ε.

    Raises:
        ConfigurationError: the ledger was begun with another limit.
        LedgerDamaged: the file is no ledger of runs, or was changed.
        LedgerInUse, LedgerNotWritten: the file cannot be locked, read or written now.
        InvalidArgument: epsilon, delta or order is out of its range.

    >>> import tempfile
    >>> ledger = RunLedger(Path(tempfile.mkdtemp()) / "runs.db", epsilon=2, delta=1e-5, level="instance", rule="renyi")
    >>> _ = ledger.charge(noise_multiplier=1.1, sampling_rate=0.01, steps=1000)
    >>> round(ledger.epsilon(), 2)
    1.82
    """

    def __init__(
        self,
        path: Path | str,
        *,
        epsilon: float,
        delta: float,
        level: LevelName = "client",
        rule: LimitRule = "gaussian",
        order: float | None = None,
    ) -> None:
        limit = limit_of(epsilon, delta, level, rule, order)
        self.path = Path(path)
        self._chain = SharedChain.wait_for(self.path)
        try:
            with self._chain.turn():
                if not self._chain.entries:
                    self._chain.write("opened", LIMIT, None, body_of(limit))
            written = limit_in(self._chain.entries)
        except BaseException:
            self._chain.close()
            raise
        if written != limit:
            self._chain.close()
            raise ConfigurationError(
                f"{self.path} was begun with {in_words(written)}, and not with {in_words(limit)}: a limit holds for "
                "ever. Name another file only if these are other people"
            )
        # Each entry is parsed once: a round costs the same after thousands of them.
        self.limit = limit
        self._steps, self._entries_counted = Counter[Charge](), 0

    def reserve(self, charge: Charge, run: str) -> RunReservation:
        """Charge a release before anything of it is made or sent. The charge is on the disk when this returns.

        Raises:
            OwnBudgetExceeded: the limit would be passed. The ledger is unchanged.
            ConfigurationError: the charge is of another level, or the run has no name.
            LedgerInUse, LedgerDamaged, LedgerNotWritten: the ledger is unchanged.
        """
        if charge.level != self.limit.level or not run or "/" in run:
            raise ConfigurationError(f"a run has a name without slashes, and charges at level {self.limit.level}")
        with self._chain.turn():
            self._require(charge)
            number = self._chain.last_number(run) + 1
            failpoint("run-ledger.before-reserved")
            self._chain.write("reserved", run, number, asdict(charge))
        failpoint("run-ledger.after-reserved")
        return RunReservation(run, number, charge)

    def require(self, charge: Charge) -> None:
        """Check that a release would fit now. Raises OwnBudgetExceeded: it would not."""
        with self._chain.turn():
            self._require(charge)

    def _require(self, charge: Charge) -> None:
        steps = self._steps_read()
        if not epsilon_of(steps + steps_of(charge), self.limit) <= self.limit.epsilon:
            raise OwnBudgetExceeded(
                "own-budget-exceeded",
                f"the next release would pass {in_words(self.limit)} of {self.path}, of which "
                f"ε = {epsilon_of(steps, self.limit):.6g} is spent",
            )

    def settle(self, reservation: RunReservation) -> None:
        """Note that the release was made as it was reserved. The charge is the same before and after. Raises as
        `reserve`."""
        with self._chain.turn():
            self._chain.write("settled", reservation.run, reservation.number, {})
        failpoint("run-ledger.after-settled")

    def charge(
        self, *, noise_multiplier: float, sampling_rate: float = 1.0, steps: int = 1, run: str = "training"
    ) -> RunReservation:
        """Charge a whole training before it begins, such as one with Opacus.

        Args:
            noise_multiplier: σ, the noise's standard deviation over the clip norm.
            sampling_rate: q of Poisson sampling. Other samplings have rate 1.
            steps: noised steps.
            run: name of the training, for the reader of the ledger.

        Raises:
            InvalidArgument: a number is out of its range.
            OwnBudgetExceeded: the limit would be passed, so that no step may be taken.
        """
        return self.reserve(charge_of(self.limit.level, noise_multiplier, sampling_rate, steps), run)

    def epsilon(self, delta: float | None = None) -> float:
        """Return ε of all charges at `delta`, or at the limit's. Charges of processes that died are among them."""
        return epsilon_of(self.steps(), self.limit, delta)

    def epsilon_after(self, charge: Charge, delta: float | None = None) -> float:
        """Return ε if this charge were added."""
        return epsilon_of(self.steps() + steps_of(charge), self.limit, delta)

    def delta(self, epsilon: float) -> float:
        """Return δ of all charges at this ε ≥ 0, rounded up."""
        return delta_of(self.steps(), self.limit, epsilon)

    def steps(self) -> Counter[Charge]:
        """Return how many noised steps of each kind were charged."""
        with self._chain.turn():
            return Counter(self._steps_read())

    def _steps_read(self) -> Counter[Charge]:
        """Return the steps of all entries that this process has read. Each entry is counted once."""
        entries = self._chain.entries
        self._steps += steps_in(entries[self._entries_counted :], self.limit)
        self._entries_counted = len(entries)
        return self._steps

    def entries(self) -> tuple[Entry, ...]:
        """Return all entries, those of other processes among them."""
        with self._chain.turn():
            return self._chain.entries

    def head(self) -> tuple[int, str]:
        """Return the number and the hash of the last entry. They fix everything before."""
        return head_of(self.entries())

    def close(self) -> None:
        """Close the file. Every entry is on the disk already."""
        self._chain.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
