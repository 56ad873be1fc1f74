"""A strategy of Flower whose rounds are charged to a ledger before they begin. The hospitals add the noise."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, cast

from client_sdk.errors import ConfigurationError, OwnBudgetExceeded
from wardround.flower.framework import FlowerStrategy, give_mean
from wardround.flower.round_terms import LEDGER_HEAD, RUN, RoundTerms, checked_run
from wardround.flower.run_ledger import RunLedger, RunReservation

logger = logging.getLogger("wardround.flower")


class KeptRounds:
    """A strategy around another one, such as FedAvg.

    A round that would pass the limit sends no messages, so that the run ends with the model that it has.

    Args:
        strategy: averages updates with equal weights. It and the other parts of Flower see the noised updates alone.
            With min_honest above 1 it is given their mean in place of each, because the noise that is counted is in the
            sum alone: a median of updates would have less.
        ledger: of the population, at level client for terms with unit hospital, and instance with unit patient.
        terms: of every round. The hospitals' HospitalMod keeps them.
        run: name of the run in the ledger. None: a new one.

    Raises:
        ConfigurationError: the ledger is of another level.
    """

    def __init__(
        self, strategy: FlowerStrategy, ledger: RunLedger, terms: RoundTerms, *, run: str | None = None
    ) -> None:
        if ledger.limit.level != terms.released().level:
            raise ConfigurationError(
                f"the ledger counts at level {ledger.limit.level}, and the terms' unit is {terms.unit}: use a ledger "
                f"with level {terms.released().level}"
            )
        self.strategy, self.ledger, self.terms = strategy, ledger, terms
        self.run = checked_run(run or f"flower-{uuid.uuid4().hex[:12]}")
        self._reservation: RunReservation | None = None
        self._sent: Mapping[str, Any] = {}

    def start(self, *arguments: Any, **named: Any) -> Any:
        """Run the strategy as its own `start` does, by the rounds of this one.

        Raises:
            OwnBudgetExceeded: not even one round is left.
        """
        self.ledger.require(self.terms.released())
        return cast(Any, type(self.strategy)).start(self, *arguments, **named)

    def __getattr__(self, name: str) -> Any:
        # Only for names that this class does not have: the rest is the strategy's own.
        if name == "strategy":
            raise AttributeError(name)
        return getattr(self.strategy, name)

    def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Iterable[Any]:
        """Charge the round, and return its messages, or none if the limit would be passed."""
        # A round before it that failed stays charged.
        self._reservation, self._sent = None, arrays
        head = ":".join(map(str, self.ledger.head()))
        for name, value in {**self.terms.to_config(), RUN: self.run, LEDGER_HEAD: head}.items():
            config[name] = value
        # Made before the charge: a strategy that fails or draws nobody costs nothing.
        messages = list(self.strategy.configure_train(server_round, arrays, config, grid))
        if not messages:
            return messages
        try:
            self._reservation = self.ledger.reserve(self.terms.released(), self.run)
        except OwnBudgetExceeded as error:
            logger.warning("round %s is not begun: %s", server_round, error)
            return []
        return messages

    def aggregate_train(self, server_round: int, replies: Iterable[Any]) -> tuple[Any, Any]:
        """Average the updates, and settle the round. Without enough noise in them there is no average."""
        reservation, self._reservation = self._reservation, None
        # Flower's own strategies drop errors, too. Here their number decides whether there is enough noise.
        answers = [reply for reply in replies if not reply.has_error()]
        if reservation is None:
            return None, None
        if len(answers) < self.terms.min_honest or not _has_equal_weights(answers):
            logger.warning(
                "round %s has %s updates, where %s with equal weights are needed: no model is made of it",
                *(server_round, len(answers), self.terms.min_honest),
            )
            return None, None
        if self.terms.counts_sum and not give_mean(answers, self._sent):
            logger.warning("round %s has other arrays than were sent: no model is made of it", server_round)
            return None, None
        # From here on the sum may be seen.
        averaged = self.strategy.aggregate_train(server_round, answers)
        self.ledger.settle(reservation)
        logger.info("ε = %.6f of %g", self.ledger.epsilon(), self.ledger.limit.epsilon)
        return averaged


def _has_equal_weights(answers: Iterable[Any]) -> bool:
    """Return whether all metrics are equal: those of HospitalMod are a weight of 1 alone."""
    metrics = [[dict(record) for record in answer.content.metric_records.values()] for answer in answers]
    return all(record == metrics[0] for record in metrics)
