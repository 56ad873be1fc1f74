"""The checks of every new entry of the coordinator's ledger against the hospital's settings, its own part and count.

The study's budget is computed here once more, entry by entry, from the settings that this hospital joined under.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

from accounting.budget.bodies import ChargedRounds, Standing, event_in, settings_in
from accounting.budget.budget import Budget
from accounting.budget.ledger import Entry, LedgerError
from accounting.budget.releases import NamedModel, Releases, named_models
from accounting.errors import AccountingError
from accounting.plan.queries import QueryCost
from accounting.plan.report import (
    DISTANCE_BINS,
    CumulativeMoments,
    RoundReport,
    distance_bin,
    histogram_in,
    moments_in,
    report_from_dict,
)
from client_sdk.errors import BadAssignment, LedgerContradicted, OwnBudgetExceeded
from client_sdk.guard.ledger import OwnRound
from study_protocol.study.any_settings import AnySettings, StatisticsSettings
from study_protocol.study.model_info import ModelInfo
from study_protocol.study.plan_of import plan_of
from study_protocol.study.privacy import Privacy
from study_protocol.study.queries import QueryDocument
from study_protocol.study.releases import fault_of_clip_norm
from study_protocol.study.reports import fault_of_report, reach
from study_protocol.study.settings import StudySettings

_CODES = {
    "max-steps-reached": "max-steps-exceeded",
    "max-queries-reached": "max-queries-exceeded",
    "budget-exhausted": "study-limit-exceeded",
}
# The coordinator measures an update's norm again, in another order: its last bits may differ from this hospital's.
_SAME_NORM = 1 - 1e-9
_JOINS = {"enrolled": 1, "key-rotated": 0, "revoked": -1, "withdrawn": -1}


class EntryChecks:
    """One hospital's calculation of one study, after every entry that it has seen.

    own   what is known here of the hospital's part in a round
    past  every entry before the one that is checked
    """

    def __init__(
        self,
        study: str,
        settings: AnySettings,
        own_round: Callable[[int], OwnRound],
        past: Callable[[], Iterable[Entry]],
    ) -> None:
        self._study, self._settings, self._own_round, self._past = study, settings, own_round, past
        self._plan, self._digest = plan_of(settings), settings.digest()
        self._budget = Budget(self._plan)
        self._exceeded: tuple[str, str] | None = None
        self._members = self._reserved_of = 0
        self._releases = Releases()

    def load(self, saved: Mapping[str, Any] | None) -> Self:
        """Go on from what `to_json` gave, or from before the first entry for None."""
        if saved is not None:
            self._budget = Budget.restore(self._plan, saved["budget"])
            self._exceeded = None if saved["exceeded"] is None else (saved["exceeded"][0], saved["exceeded"][1])
            self._members, self._reserved_of = saved["members"], saved["reserved_of"]
            # An earlier version kept nothing of it, because its ledgers named no models.
            self._releases = Releases.restored(saved.get("releases"))
        return self

    def to_json(self) -> dict[str, Any]:
        """Return the state to be kept beside the head."""
        state = {"members": self._members, "reserved_of": self._reserved_of, "exceeded": self._exceeded}
        state["releases"] = self._releases.to_json()
        return {"budget": self._budget.state(), **state}

    @property
    def exceeded(self) -> bool:
        """Whether a round was reserved that passes a limit of the study by this hospital's own calculation."""
        return self._exceeded is not None

    def require_within_limits(self) -> None:
        """Whether the study has kept its own limits, classical, Bayesian and of steps.

        Raises:
            OwnBudgetExceeded: one was passed. The hospital takes part in no further round.
        """
        if self._exceeded is not None:
            raise OwnBudgetExceeded(*self._exceeded)

    def require_asked(self, round_number: int, document: QueryDocument) -> None:
        """That the round's reservation is of this query, at what it costs.

        Raises:
            BadAssignment: it is of another one, or of none.
        """
        entry = next((entry for entry in self._past() if entry.kind == "asked" and entry.round == round_number), None)
        expected = {"query": document.digest(), "cost": document.cost().to_dict()}
        if entry is None or {name: entry.body[name] for name in expected} != expected:
            raise BadAssignment("the ledger does not reserve the cost of the query that is asked")

    def require_models(self, start: ModelInfo | None, evaluated: ModelInfo | None) -> None:
        """Require that the models of an assignment are those that the ledger names. A ledger that names none allows
        any, at the clip norm of the settings.

        start      the model that a round of training begins with: the newest one
        evaluated  what a question is about

        Raises:
            BadAssignment: one is another file, or has a clip norm that the study or its ledger does not allow.
        """
        newest = self._releases.newest
        if newest is None:
            if isinstance(self._settings, StudySettings) and self._settings.privacy.adaptive_clip is not None:
                raise BadAssignment("the ledger names no model, and so no clip norm of the study's adaptive one")
            # Bayesian costs, and bounds on whole hospitals, are measured against the norm of the settings.
            if start is not None and start.clip_norm is not None:
                raise BadAssignment("the assignment names a clip norm, and the study's is constant")
            return
        if start is not None:
            _require_same(start, newest)
        if evaluated is not None:
            models = named_models(self._past())
            # What was released before the ledger named any is bound by nothing.
            if evaluated.version >= min(models):
                _require_same(evaluated, models.get(evaluated.version))

    def require_attempt(self, phase: str, attempt: int | None) -> None:
        """Require that a round of training has the place in the noise schedule that its reservation took.

        Raises:
            BadAssignment: the assignment names another one, or one where there is none.
        """
        has_place = phase == "train" and self._plan.noise_schedule is not None
        # Past a limit nothing is counted any more, and no round is taken part in.
        if has_place and self._exceeded is not None:
            return
        expected = self._budget.attempts if has_place else None
        if attempt != expected:
            raise BadAssignment(
                f"the assignment names place {attempt} of the noise schedule, and by the ledger it is {expected}"
            )

    def check(self, entry: Entry) -> None:
        """Take in the next entry.

        Raises:
            LedgerContradicted: it cannot be, or this hospital knows better. No later entry is looked at.
        """
        try:
            self._check(entry, event_in(entry), Standing.within(entry))
        except LedgerError as error:
            raise LedgerContradicted(f"the coordinator's ledger holds an entry that cannot be: {error}") from error

    def _check(self, entry: Entry, event: Mapping[str, Any], standing: Standing) -> None:
        if standing.settings_sha256 != self._digest:
            raise _untrue(entry, "it names other settings than those that this hospital joined under")
        self._check_members(entry, event, standing.members)
        if entry.sequence == 1 and entry.kind != "opened":
            raise _untrue(entry, "it opens no study")
        if entry.kind == "opened":
            self._check_opening(entry, event)
            return
        check = {
            "reserved": self._check_reserved,
            "asked": self._check_asked,
            "settled": self._check_settled,
            "cancelled": self._check_cancelled,
            "finished": self._check_withheld,
        }.get(entry.kind)
        if check is not None:
            check(entry, event)
        before = self._releases.clip_norm
        self._releases.take(entry)
        if entry.kind == "released":
            fault = fault_of_clip_norm(self._settings, self._releases.clip_norm, before)
            if fault is not None:
                raise _untrue(entry, fault)
        # Past a limit nothing is computed any more: no round is taken part in, whatever follows.
        if self._exceeded is None:
            self._budget.happen(entry.sequence, entry.kind, entry.round, event)

    def _check_opening(self, entry: Entry, event: Mapping[str, Any]) -> None:
        if event["study"] != self._study or settings_in(entry) != self._settings.as_json():
            raise _untrue(entry, "it opens another study, or under other settings, than this hospital joined")
        if event["plan"] != self._plan.to_dict():
            raise _untrue(entry, "its plan is not that of the study's settings: the budget is kept by other numbers")

    def _check_members(self, entry: Entry, event: Mapping[str, Any], members: int) -> None:
        change = _JOINS[event["change"]] if entry.kind == "roster" else 0
        if members != self._members + change:
            raise _untrue(entry, f"it counts {members} members where {self._members + change} are left")
        self._members = members

    def _check_reserved(self, entry: Entry, _: Mapping[str, Any]) -> None:
        self._reserved_of, round_number = self._members, entry.round or 0
        authorisation = self._budget.authorise(round_number)
        if self._exceeded is not None or authorisation.is_allowed or authorisation.reason not in _CODES:
            return
        level, definition = authorisation.limit or ("", "")
        limit_name = f"the {definition} limit at {level} level" if authorisation.limit else "its limit of noised steps"
        text = (
            f"round {round_number} was reserved although it would pass {limit_name}, by this hospital's own calculation"
        )
        self._exceeded = (_CODES[authorisation.reason], text)

    def _check_asked(self, entry: Entry, event: Mapping[str, Any]) -> None:
        if self._exceeded is not None:
            return
        try:
            authorisation = self._budget.authorise_query(QueryCost.from_dict(event["cost"]))
        except AccountingError:
            # What is no cost, or of no study with queries, the budget refuses below.
            return
        if authorisation.is_allowed or authorisation.reason not in _CODES:
            return
        text = (
            f"round {entry.round} asks a query that would pass a limit of the study, by this hospital's own calculation"
        )
        self._exceeded = (_CODES[authorisation.reason], text)

    def _check_settled(self, entry: Entry, event: Mapping[str, Any]) -> None:
        self._check_report(entry, entry.round or 0, event["report"], self._reserved_of)

    def _check_cancelled(self, entry: Entry, _: Mapping[str, Any]) -> None:
        if self._own_round(entry.round or 0).accepted:
            raise _untrue(
                entry,
                f"round {entry.round} was cancelled, which makes it free, although the coordinator has taken what "
                "this hospital sent in it",
            )

    def _check_withheld(self, entry: Entry, event: Mapping[str, Any]) -> None:
        """Disclosure `at-end`: one report for each charged round, in order."""
        reports: list[Any] | None = event["report"]
        if reports is None:
            return
        charged = ChargedRounds()
        for past in self._past():
            charged.take(past)
        if len(charged.rounds) != len(reports):
            raise _untrue(entry, f"it shows {len(reports)} reports of {len(charged.rounds)} charged rounds")
        for (round, of), report in zip(charged.rounds, reports, strict=True):
            self._check_report(entry, round, report, of)

    def _check_report(self, entry: Entry, round_number: int, value: Mapping[str, Any] | None, members: int) -> None:
        try:
            report = report_from_dict(value)
        except AccountingError as error:
            raise _untrue(entry, f"the report of round {round_number} is none: {error}") from error
        # What a query reports is nothing, as the budget finds.
        if report is None or isinstance(self._settings, StatisticsSettings):
            return
        fault = fault_of_report(self._settings, report, round_number=round_number, members=members)
        if fault is None:
            fault = self._own_fault(self._settings.privacy, self._own_round(round_number), round_number, report)
        if fault is not None:
            raise _untrue(entry, f"the report of round {round_number} cannot be true: {fault}")

    def _own_fault(self, privacy: Privacy, own_round: OwnRound, round_number: int, report: RoundReport) -> str | None:
        moments, histogram = moments_in(report), histogram_in(report)
        if moments is not None and moments.complete and self._sent_none(own_round, round_number):
            return "it is said to hold the bounds of all clients, and this hospital sent none"
        local_report = own_round.reported
        if not own_round.accepted or local_report is None:
            return None
        if moments is not None and _is_below(moments, local_report):
            return "the largest of all bounds is smaller than the one that this hospital reported"
        if histogram is not None and "distance" in local_report:
            return _fault_of_counts(privacy, histogram.counts, histogram.count_noise, local_report["distance"])
        return None

    def _sent_none(self, own_round: OwnRound, round_number: int) -> bool:
        """Return whether this hospital took part before, and has not finished this round."""
        if own_round.finished:
            return False
        # Those in the ledger, not all numbers below: a coordinator may have left out two billion.
        before = {entry.round for entry in self._past() if entry.kind == "reserved"}
        return any(
            self._own_round(number).accepted for number in before if number is not None and number < round_number
        )


def _require_same(model: ModelInfo, named_model: NamedModel | None) -> None:
    if named_model is None or (model.version, model.sha256, model.bytes, model.clip_norm) != (
        named_model.version,
        named_model.sha256,
        named_model.bytes,
        named_model.clip_norm,
    ):
        problem = (
            "names none of that round"
            if named_model is None
            else f"names that of round {named_model.version}, another file or clip norm"
        )
        raise BadAssignment(f"the assignment begins with a model of round {model.version}, and the ledger {problem}")


def _untrue(entry: Entry, reason: str) -> LedgerContradicted:
    return LedgerContradicted(f"the coordinator's ledger is not true, entry {entry.sequence}: {reason}")


def _is_below(moments: CumulativeMoments, local_report: Mapping[str, Any]) -> bool:
    if "filter" not in local_report:
        return False
    local_bounds = (local_report["filter"], *local_report["moments"])
    return any(
        published < mine for published, mine in zip((moments.filter, *moments.moments), local_bounds, strict=True)
    )


def _fault_of_counts(privacy: Privacy, counts: tuple[int, ...], noise: float, distance: float) -> str | None:
    top = privacy.clip_norm if privacy.client_clip_norm is None else privacy.client_clip_norm
    local_bin = distance_bin(distance * _SAME_NORM, top)
    # With noise on the counts only what is surely too few is a contradiction.
    if sum(counts[local_bin:]) < 1 - reach(noise, DISTANCE_BINS - local_bin):
        return "no client is counted at the distance of this hospital's own update, or further"
    return None
