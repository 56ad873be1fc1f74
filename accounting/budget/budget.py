"""May the next round begin? All limits of one study over one ledger: authorise, reserve, then settle or charge in full.

Pure: the same entries in the same order give the same answers, live or replayed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

from accounting.budget import statements
from accounting.budget.accounts import Account, GaussianLimit
from accounting.budget.bodies import Standing, event_in, settings_in
from accounting.budget.enforcement import account_of, accounts_of
from accounting.budget.feasibility import require_evaluations, require_feasible, require_planned, require_questions
from accounting.budget.ledger import GENESIS, Entry, Kind, LedgerError, verify_chain
from accounting.errors import AccountingError, InvalidArgument
from accounting.plan.plan import Plan
from accounting.plan.queries import QueryCost
from accounting.plan.report import RoundReport, report_from_dict
from accounting.plan.statistics import AnyPlan, plan_from_dict
from accounting.units import Definition, Level

StopReason = Literal["max-steps-reached", "max-queries-reached", "budget-exhausted", "stopped"]


class BudgetExceeded(AccountingError):
    """The round may not begin. `reason` says whether a limit, `max_steps` or `max_queries` is in the way."""

    def __init__(self, authorisation: Authorisation) -> None:
        super().__init__(f"no further round: {authorisation.reason}")
        self.authorisation = authorisation


class OutOfOrder(AccountingError):
    """A round was settled that is not reserved, reserved twice, or anything came after the end."""


@dataclass(frozen=True)
class Authorisation:
    """The answer to: may the next round begin? `limit` is the (level, definition) that would be passed."""

    is_allowed: bool
    reason: StopReason | None = None
    limit: tuple[Level, Definition] | None = None


class Budget:
    """The limits of one plan.

    Guarantees: a reserved round is always paid for, at most at its reservation. After a restore everything reads as
    before. An error leaves the budget unchanged.
    """

    def __init__(self, plan: AnyPlan) -> None:
        self.plan = plan
        self.accounts: list[Account] = accounts_of(plan)
        self.last_round = 0
        self.attempts = 0
        self.charged_rounds = 0
        self.charged_queries = 0
        self.pending: int | None = None
        self.pending_query: QueryCost | None = None
        self.finished: str | None = None

    @classmethod
    def open(cls, plan: AnyPlan) -> Self:
        """A budget in which at least one round fits, if the study trains, or else a query.

        Raises:
            FirstRoundOverspends: none does. The text says which noise would fit.
            PlanError: no noise would, or the scheduled evaluations of all rounds do not fit.
        """
        if isinstance(plan, Plan):
            require_feasible(plan, lambda candidate: [account_of(candidate, limit) for limit in candidate.limits])
            require_evaluations(plan, [account_of(plan, limit) for limit in plan.limits])
        else:
            require_questions([GaussianLimit(plan, limit) for limit in plan.limits])
        return cls(plan)

    def authorise(self, round_number: int | None = None) -> Authorisation:
        """Return whether this round of training (None: the next one) may begin, without a change.

        ε = NaN or ∞ reads as overspent.
        """
        if self.finished is not None:
            return Authorisation(False, "stopped")
        if self.is_spent:
            return Authorisation(False, "max-steps-reached")
        publishes, stage = self.plan.publishes(round_number or self.last_round + 1), self.next_stage
        for account in self.accounts:
            if not account.fits_worst_round(publishes=publishes, stage=stage):
                return Authorisation(False, "budget-exhausted", (account.limit.level, account.limit.definition))
        return Authorisation(True)

    def authorise_query(self, cost: QueryCost) -> Authorisation:
        """Return whether a query of this cost may be asked, without a change."""
        if self.finished is not None:
            return Authorisation(False, "stopped")
        queries = self.plan.queries
        if queries is None or cost.cells > queries.max_cells:
            raise InvalidArgument("query", "the study allows no queries, or none with so many cells")
        if cost.bears == "evaluated" and queries.evaluation is None:
            raise InvalidArgument("query", "the study sets no patients aside who could bear an evaluation")
        if self.charged_queries >= queries.max_queries:
            return Authorisation(False, "max-queries-reached")
        for account in self.accounts:
            if not account.fits_query(cost):
                return Authorisation(False, "budget-exhausted", (account.limit.level, account.limit.definition))
        return Authorisation(True)

    def supposing(self, queries: Iterable[QueryCost]) -> Self:
        """Return a copy that is charged with these queries, and in full with the round under way.

        A round or query that fits the copy fits this budget, however these end.
        """
        supposed = self.restore(self.plan, self.state())
        if supposed.pending is not None:
            supposed.settle(supposed.pending, None)
        for cost in queries:
            for account in supposed.accounts:
                account.charge_query(cost)
            supposed.charged_queries += 1
        return supposed

    def reserve_query(self, round_number: int, cost: QueryCost) -> None:
        """Take the cost of a query out of the budget. It is a round of its own kind, numbered like the others.

        Raises:
            BudgetExceeded, OutOfOrder: as `reserve`.
            InvalidArgument: the study allows no such query.
        """
        self._require_next(round_number)
        authorisation = self.authorise_query(cost)
        if not authorisation.is_allowed:
            raise BudgetExceeded(authorisation)
        self.pending, self.last_round, self.pending_query = round_number, round_number, cost

    def reserve(self, round_number: int) -> None:
        """Take the worst case of `round_number` out of the budget.

        Raises:
            BudgetExceeded: a limit or max_steps would be passed.
            OutOfOrder: another round is under way, or this one is not later than the last.
        """
        self._require_next(round_number)
        authorisation = self.authorise(round_number)
        if not authorisation.is_allowed:
            raise BudgetExceeded(authorisation)
        # The number is used up, also where the round is cancelled later. So is the next entry of a noise schedule.
        self.pending = self.last_round = round_number
        self.attempts += 1

    def settle(self, round_number: int, report: RoundReport | None) -> None:
        """Charge the round by its report, or its reservation without a report or by one that allows no estimate.

        Raises:
            OutOfOrder: the round is not reserved.
        """
        self._require_pending(round_number)
        if self.pending_query is not None:
            if report is not None:
                raise OutOfOrder(f"round {round_number} is a query, which has nothing to report")
            for account in self.accounts:
                account.charge_query(self.pending_query)
            self.charged_queries += 1
        else:
            for account in self.accounts:
                account.charge(report, publishes=self.plan.publishes(round_number), stage=self.next_stage)
            self.charged_rounds += 1
        self.pending = self.pending_query = None

    def charge_in_full(self, round_number: int, reason: str) -> None:
        """Charge an abandoned round in full, because a part of it was seen."""
        self.settle(round_number, None)

    def cancel(self, round_number: int, reason: str) -> None:
        """Give an abandoned round's reservation back, because no data left any building.

        A histogram of an accounting sample stays charged: its hospital has drawn it, and may report it in a later
        round.
        """
        self._require_pending(round_number)
        if self.pending_query is None and self.plan.publishes(round_number) and not self.plan.rules.counts_clients:
            for account in self.accounts:
                account.charge_histogram()
        self.pending = self.pending_query = None

    def finish(self, reason: str, report: Sequence[RoundReport | None] | None = None) -> None:
        """No round after this. A round under way must be settled first.

        report  disclosure `at-end`: the report of every charged round, withheld until now. It changes what
                  certificates say, not what was enforced

        Raises:
            OutOfOrder: a round is under way, the study is finished, or there is not one report for each charged round.
        """
        if self.pending is not None or self.finished is not None:
            raise OutOfOrder("the study has a round under way or is already finished")
        if report is not None:
            self._reveal(report)
        self.finished = reason

    def _reveal(self, report: Sequence[RoundReport | None]) -> None:
        if self.plan.disclosure != "at-end" or len(report) != self.charged_rounds:
            raise OutOfOrder("reports are withheld under disclosure at-end only, one for each charged round")
        # New ones, put in place at the end: an error leaves those that were enforced.
        accounts = accounts_of(self.plan)
        for account, unrevealed in zip(accounts, self.accounts, strict=True):
            if self.plan.noise_schedule is not None:
                # No hospital estimates anything under a schedule, and cancelled rounds took entries of it.
                account.restore(unrevealed.state())
                continue
            for reported in report:
                # Disclosure at-end publishes no histograms.
                account.charge(reported, publishes=False)
            account.take_queries(unrevealed.queries)
        self.accounts = accounts

    @property
    def begun_rounds(self) -> int:
        """The rounds of the plan that can begin no more.

        By charged rounds: one that was cancelled took no step. With a noise schedule by attempts: no entry is used
        twice.
        """
        return self.charged_rounds if self.plan.noise_schedule is None else self.attempts

    @property
    def is_spent(self) -> bool:
        """Whether max_steps allows no further round."""
        return self.begun_rounds >= self.plan.rounds

    @property
    def next_stage(self) -> int:
        """The stage of the noise schedule that the round under way has, or else the next one."""
        return self.plan.stage_of(self.attempts + (self.pending is None or self.pending_query is not None))

    @property
    def can_continue(self) -> bool:
        """Whether another round may begin. While one is under way the question has been answered: it may go on."""
        return self.pending is not None or self.authorise().is_allowed or self.may_ask

    @property
    def may_ask(self) -> bool:
        """Whether queries may still be asked, if there is noise enough that one fits."""
        queries = self.plan.queries
        return self.finished is None and queries is not None and self.charged_queries < queries.max_queries

    def apply(self, entry: Entry) -> None:
        """Do what a ledger entry says happened.

        Raises:
            LedgerError: the entry says too much or too little, or cannot have happened. The budget is unchanged.
        """
        # How the study stood is the coordinator's to compare: floats may differ in their last bits elsewhere.
        Standing.within(entry)
        self.happen(entry.sequence, entry.kind, entry.round, event_in(entry))

    def happen(self, sequence: int, kind: Kind, round_number: int | None, event: Mapping[str, Any]) -> None:
        """Do what an entry `sequence` of this kind, with this event in its body, would say happened.

        Raises:
            LedgerError: it cannot happen now. The budget is unchanged.
        """
        try:
            self._dispatch(kind, round_number, event)
        # Also where absurd numbers overflow: whoever reads a ledger is told which entry it was.
        except (AccountingError, ValueError, ArithmeticError) as error:
            raise LedgerError(sequence, str(error)) from error

    def statements(self, *, whole: bool = True) -> list[dict[str, Any]]:
        """Return one JSON statement per limit, and one per unprotected level. whole: with what takes long."""
        return statements.statements(self, may_begin=self.authorise().is_allowed, whole=whole)

    def reports(self) -> list[list[dict[str, Any]]]:
        """The tighter numbers of every limit, those that take long among them."""
        return statements.reports(self)

    def percentiles(self) -> list[dict[str, float]]:
        """Return the guarantees that fractions of the population enjoy, by Markov."""
        return statements.percentiles(self)

    def state(self) -> dict[str, Any]:
        """JSON from which `restore` continues exactly."""
        query = self.pending_query
        query_cost = None if query is None else query.to_dict()
        return {
            "last_round": self.last_round,
            "charged_rounds": self.charged_rounds,
            "pending": self.pending,
            "finished": self.finished,
            "accounts": [account.state() for account in self.accounts],
            **({} if self.plan.queries is None else {"charged_queries": self.charged_queries, "asked": query_cost}),
            # Where all steps are equal nothing depends on them: states stay as they were written.
            **({} if self.plan.noise_schedule is None else {"attempts": self.attempts}),
        }

    @classmethod
    def restore(cls, plan: AnyPlan, state: Mapping[str, Any]) -> Self:
        """The budget whose `state` this was. InvalidArgument: it belongs to another plan."""
        budget = cls(plan)
        if len(state["accounts"]) != len(budget.accounts):
            raise InvalidArgument("state", "belongs to another plan")
        for account, saved in zip(budget.accounts, state["accounts"], strict=True):
            account.restore(saved)
        budget.last_round, budget.charged_rounds = state["last_round"], state["charged_rounds"]
        budget.pending, budget.finished = state["pending"], state["finished"]
        if plan.noise_schedule is not None:
            if "attempts" not in state:
                raise InvalidArgument("state", "does not say which entries of the noise schedule are used up")
            budget.attempts = state["attempts"]
        if plan.queries is not None:
            query = state["asked"]
            budget.charged_queries = state["charged_queries"]
            budget.pending_query = None if query is None else QueryCost.from_dict(query)
        return budget

    def _dispatch(self, kind: Kind, round_number: int | None, event: Mapping[str, Any]) -> None:
        match kind, round_number:
            # Members and people's acts change nothing that was spent. A finished study's ledger has ended.
            case "roster" | "operated", None if self.finished is None:
                pass
            # Nor does which file a round made. That it was settled, `Releases` looks up.
            case "released", _ if self._has_settled_last(round_number):
                pass
            case "reserved", int(number):
                self.reserve(number)
            case "asked", int(number):
                self.reserve_query(number, QueryCost.from_dict(event["cost"]))
            case "settled", int(number):
                self.settle(number, report_from_dict(event["report"]))
            case "charged-in-full", int(number):
                self.charge_in_full(number, event["reason"])
            case "cancelled", int(number):
                self.cancel(number, event["reason"])
            case "finished", None:
                self.finish(event["reason"], _reports(event["report"]))
            case _:
                raise OutOfOrder(f"an entry of kind {kind} has no place here")

    def _has_settled_last(self, round_number: int | None) -> bool:
        return self.finished is None and self.pending is None and (round_number or 0) == self.last_round

    def _require_next(self, round_number: int) -> None:
        if self.pending is not None:
            raise OutOfOrder(f"round {self.pending} is still reserved")
        if round_number <= self.last_round:
            raise OutOfOrder(f"round {round_number} is not after round {self.last_round}")

    def _require_pending(self, round_number: int) -> None:
        if self.pending != round_number:
            raise OutOfOrder(f"round {round_number} is not reserved")


def _reports(reported: Sequence[Mapping[str, Any] | None] | None) -> list[RoundReport | None] | None:
    return None if reported is None else list(map(report_from_dict, reported))


def replay(entries: Iterable[Entry]) -> Budget:
    """The budget that a whole ledger leads to, its chain verified on the way.

    Whether its plan is that of its settings, `require_plan` of the protocol says.

    Raises:
        LedgerError: the chain is broken, the first entry opens no study, or an entry cannot have happened.
    """
    budget: Budget | None = None
    head, settings_sha256 = (0, GENESIS), ""
    for entry in entries:
        # One by one: an entry acts only after its hash has been checked.
        head = verify_chain([entry], after=head)
        if budget is None:
            budget, settings_sha256 = opened_by(entry), Standing.within(entry).settings_sha256
            continue
        if Standing.within(entry).settings_sha256 != settings_sha256:
            raise LedgerError(entry.sequence, "names other settings than the first entry")
        budget.apply(entry)
    if budget is None:
        raise LedgerError(0, "an empty ledger opens no study")
    return budget


def opened_by(entry: Entry) -> Budget:
    """The budget that a ledger's first entry opens.

    Raises:
        LedgerError: it opens none.
    """
    settings_in(entry)
    try:
        budget = Budget(plan_from_dict(event_in(entry)["plan"]))
        if isinstance(budget.plan, Plan):
            require_planned(budget.plan, budget.accounts)
        return budget
    except (AccountingError, ValueError, ArithmeticError) as error:
        raise LedgerError(entry.sequence, str(error)) from error
