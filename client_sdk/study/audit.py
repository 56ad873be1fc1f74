"""The check of a coordinator's ledger against itself. Any holder of the ledger can run it, with no network and no part
in the study. It cannot show whether the reports are those of the hospitals, and whether a round that was cancelled was
free. Of these only hospitals know, each of its own part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from accounting.budget.bodies import ChargedRounds, Standing, event_in, settings_in
from accounting.budget.budget import Budget, opened_by
from accounting.budget.floors import min_bounds
from accounting.budget.ledger import Entry, LedgerError, verify_chain
from accounting.budget.releases import Releases
from accounting.errors import InvalidArgument
from accounting.plan.limits import limit_among
from accounting.plan.report import RoundReport, moments_in, report_from_dict
from accounting.units import Definition, Level
from client_sdk.errors import LedgerNotExtended
from study_protocol.study.any_settings import AnySettings, StatisticsSettings
from study_protocol.study.messages import SignedLedgerHead
from study_protocol.study.plan_of import PlanDiffers, plan_of, require_plan
from study_protocol.study.releases import fault_of_clip_norm
from study_protocol.study.reports import fault_of_report
from study_protocol.study.settings import StudySettings
from study_protocol.wire.signing import LEDGER_HEAD, SigningError, decode_public_key, verify_document

_MODELS_ARE_NAMED = "every released model's file is named by its SHA-256: no other file passes for it"
_MODELS_ARE_NOT_NAMED = (
    "no released model is named: which file is a round's model, the coordinator's word alone says. The study began "
    "under an earlier version, or its coordinator does not bind models"
)


@dataclass(frozen=True)
class Audited:
    """A ledger without a contradiction.

    budget  computed again from its entries
    kinds   how many entries there are of each
    names_models  whether every released model's file is bound by an entry
    """

    settings: AnySettings
    budget: Budget
    entries: int
    head: str
    kinds: Counter[str]
    names_models: bool

    def words(self) -> list[str]:
        """Return the findings as text for people."""
        kinds = self.kinds
        queries = f" and {kinds['asked']} for queries" if kinds["asked"] else ""
        rounds = (
            f"{kinds['reserved']} rounds reserved{queries}: "
            f"{kinds['settled']} settled by what was reported or at their worst, "
            f"{kinds['charged-in-full']} charged in full, {kinds['cancelled']} cancelled and free"
        )
        models = (
            []
            if not self.settings.privacy.rules.trains
            else [_MODELS_ARE_NAMED if self.names_models else _MODELS_ARE_NOT_NAMED]
        )
        return [
            f"entries 1 to {self.entries}: each hangs on the one before, and could have followed it",
            f"the plan is that of the settings in entry 1, sha256 {self.settings.digest()}",
            rounds,
            *models,
            "every report is one that so many members could have made. Only they can tell whether it is theirs",
        ]


def audited(study: str, entries: Sequence[Entry]) -> Audited:
    """The budget of a whole ledger, from the settings in its first entry.

    Raises:
        LedgerNotExtended: names the first entry that is none, cannot have happened, has another plan than that of the
            settings, or a report that no member can have made.
    """
    try:
        verify_chain(entries)
        return _audited(study, entries)
    except LedgerError as error:
        raise LedgerNotExtended(str(error)) from error


def _opening_settings(study: str, first: Entry) -> AnySettings:
    """Return the settings in the first entry, whose plan follows from them."""
    opening_settings, opening = settings_in(first), event_in(first)
    if opening["study"] != study:
        raise LedgerError(1, "opens another study")
    try:
        return require_plan(opening_settings, opening["plan"])
    except PlanDiffers as error:
        raise LedgerError(1, str(error)) from error


def _audited(study: str, entries: Sequence[Entry]) -> Audited:
    if not entries:
        raise LedgerError(0, "an empty ledger opens no study")
    first = entries[0]
    settings = _opening_settings(study, first)
    budget, digest = opened_by(first), Standing.within(first).settings_sha256
    releases = Releases()
    charged = ChargedRounds()
    for entry in entries[1:]:
        if Standing.within(entry).settings_sha256 != digest:
            raise LedgerError(entry.sequence, "names other settings than the first entry")
        charged.take(entry)
        # The cost of a query is known beforehand. The budget finds a report that should not be there.
        for report, (round, members) in () if charged.is_query(entry) else _reports(entry, charged.rounds):
            _require_possible(entry, settings, report, round, members)
        budget.apply(entry)
        before = releases.clip_norm
        releases.take(entry)
        fault = fault_of_clip_norm(settings, releases.clip_norm, before) if entry.kind == "released" else None
        if fault is not None:
            raise LedgerError(entry.sequence, fault)
    kinds = Counter[str](entry.kind for entry in entries)
    return Audited(settings, budget, len(entries), entries[-1].sha256, kinds, releases.newest is not None)


def _reports(entry: Entry, charged: Sequence[tuple[int, int]]) -> list[tuple[Any, tuple[int, int]]]:
    """Yield the reports of an entry, each of a round and of as many members as it was reserved of."""
    event = event_in(entry)
    if entry.kind == "settled":
        return [(event["report"], charged[-1])]
    if entry.kind != "finished" or event["report"] is None:
        return []
    if len(event["report"]) != len(charged):
        raise LedgerError(entry.sequence, f"shows {len(event['report'])} reports of {len(charged)} charged rounds")
    return list(zip(event["report"], charged, strict=True))


def _require_possible(entry: Entry, settings: AnySettings, value: Any, round_number: int, members: int) -> None:
    try:
        report = report_from_dict(value)
    except InvalidArgument as error:
        raise LedgerError(entry.sequence, str(error)) from error
    if isinstance(settings, StatisticsSettings):
        return
    fault = fault_of_report(settings, report, round_number=round_number, members=members) or _fault_of_sample(
        settings, report
    )
    if fault is not None:
        raise LedgerError(entry.sequence, f"the report of round {round_number} is none that could be made: {fault}")


def _fault_of_sample(settings: StudySettings, report: RoundReport | None) -> str | None:
    """Whether the bounds are below what an accounting sample of this size can show, were all its gradients zero."""
    reported, sample = moments_in(report), settings.privacy.accounting_sample
    limit = limit_among(settings.privacy.limit_plans, Level.INSTANCE, Definition.BAYESIAN)
    if reported is None or sample is None or limit is None:
        return None
    bounds = min_bounds(plan_of(settings), limit, sample.records)
    for value, floor in zip((reported.filter, *reported.moments), bounds, strict=True):
        if not value >= floor:
            return f"a bound below what {sample.records} records can show: {value:g}, where {floor:g} is the least"
    return None


def require_signed(key: str, study: str, signed: SignedLedgerHead, entries: Sequence[Entry]) -> None:
    """That this key signed a head to which these entries lead.

    Raises:
        LedgerNotExtended: it did not, or it is the head of another ledger.
    """
    try:
        verify_document(decode_public_key(key), LEDGER_HEAD, signed.head.model_dump(mode="json"), signed.signature)
    except SigningError as error:
        raise LedgerNotExtended("the ledger head is not signed with this coordinator's key") from error
    last = (entries[-1].sequence, entries[-1].sha256) if entries else (0, "")
    if signed.head.study != study or (signed.head.entries, signed.head.sha256) != last:
        raise LedgerNotExtended("the entries do not lead to the head that the coordinator signed")
