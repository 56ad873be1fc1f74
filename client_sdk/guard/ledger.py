"""The hospital's own ledger: what it sent from one set of records, over all studies that use them.

A charge is durable before anything is computed for it. The finished update's digest and the running sums become durable
together.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from typing import TYPE_CHECKING, Any

from accounting.budget.ledger import Kind
from client_sdk.errors import ConfigurationError, LedgerDamaged
from client_sdk.guard.charges import Charge, OwnLimit, require_affordable
from client_sdk.guard.ledger_chain import DECLARED
from client_sdk.guard.ledger_views import BodyKind, ChargedRound, Departure, OwnRound, RecordsMark
from client_sdk.guard.limit_terms import LedgerTerms, WholePlan
from client_sdk.guard.seen_ledger import SeenLedger
from client_sdk.guard.split import PatientSplit
from client_sdk.guard.trained import TrainedPatients
from private_learning.records.table_format import TableFormat

if TYPE_CHECKING:
    from client_sdk.guard.policy import SitePolicy
    from client_sdk.guard.policy_limits import Limits

# Stand where a study's name does, and can be none: patients' sums, format of tables, slots, own limits, records' mark.
_INDIVIDUAL, _FORMAT, _SLOT, _TERMS, _RECORDS = "/individual", "/format", "/slot/", "/terms", "/records"
# The kinds after which something may have left.
_SENT = ("settled", "charged-in-full")


class HospitalLedger(TrainedPatients):
    """The charges of all studies on one data set."""

    def opened(self, study: str) -> Mapping[str, Any] | None:
        """Return the entry of this hospital's first joining of `study`, or None if it never joined."""
        return next((entry.body for entry in self._of(study) if entry.kind == "opened"), None)

    def open_study(
        self, study: str, facts: Mapping[str, Any], split: PatientSplit | None = None, mark: RecordsMark | None = None
    ) -> None:
        """Write down that this hospital takes part in `study`, under which settings, with which records, and on which
        side patients are."""
        with self._writing():
            if mark is not None:
                self._append_mark(study, mark)
            if split is not None:
                stored_split = (1, split.secret, split.share)
                self._connection.execute("INSERT OR IGNORE INTO split VALUES (?, ?, ?)", stored_split)
            self._append("opened", study, None, {**facts, "split_sha256": None if split is None else split.digest})

    def split(self, study: str, share: float) -> PatientSplit:
        """Return the split of patients between training and evaluation in `study`, the same for all studies on these
        records.

        A new one is kept only once `open_study` has written it.

        Raises:
            ConfigurationError: another study on these records sets another share aside.
            LedgerDamaged: it is not the one that the study began with.
        """
        row = self._connection.execute("SELECT secret, share FROM split").fetchone()
        split, opened = PatientSplit.draw(share) if row is None else PatientSplit(*row), self.opened(study)
        if opened is not None and opened["split_sha256"] != split.digest:
            raise LedgerDamaged(
                f"which patients study {study} trains on and which it evaluates is not what was written: restore this "
                "hospital's directory from a backup"
            )
        # Whoever lies between two shares would be trained on in one study and evaluated in the other.
        if split.share != share:
            raise ConfigurationError(
                f"evaluation.share is {share:g}, and these records are split at {split.share:g} for other studies: ask "
                "for a study with that share, or name another data set if these are other patients (join --dataset)"
            )
        return split

    @property
    def table_format(self) -> TableFormat | None:
        """Return the format of this data set's tables, as a person last declared it, or None without a declaration."""
        declared = [entry.body["format"] for entry in self._of(_FORMAT)]
        return TableFormat.from_dict(declared[-1]) if declared else None

    def declare_format(self, table_format: TableFormat) -> None:
        """Keep how tables of this data set are written, beside what was declared before. The same again is no entry.

        Raises:
            ConfigurationError: it is another one, and a study that has charged rounds reads the data set by the first.
        """
        before = self.table_format
        if table_format == before:
            return
        reading = [study for study in self._under_way() if self.rounds_known(study)]
        if reading:
            raise ConfigurationError(
                f"these records are declared with {before or 'no format'}, and study {', '.join(reading)} has been "
                f"charged for reading them so: a change to {table_format} waits until it has ended, or name another "
                "data set (--dataset)"
            )
        with self._writing():
            replaced = None if before is None else before.to_dict()
            body = {"format": table_format.to_dict(), "replaced": replaced, "at": self._moment()}
            self._append(DECLARED, _FORMAT, None, body)

    def records_marks(self, study: str | None = None) -> list[RecordsMark]:
        """Return the mark of the records that a study last used. Of a study that used none, or of None, those of all
        studies, the oldest first.

        Studies on one data set may use several files, each its own.
        """
        last = {entry.body["joined"]: RecordsMark.from_dict(entry.body) for entry in self._of(_RECORDS)}
        return [last[study]] if study in last else sorted(last.values(), key=lambda mark: mark.at)

    def records_key(self) -> bytes:
        """Return the secret key of the marks. Before there is a mark, it is one of this process."""
        return self.sums(_RECORDS) or self._new_key

    def declare_records(self, study: str, mark: RecordsMark) -> None:
        """Keep the mark of the records that a study uses. The same again is no entry."""
        marks = [RecordsMark.from_dict(each.body) for each in self._of(_RECORDS) if each.body["joined"] == study]
        last = [(each.content, each.inputs, each.origin) for each in marks[-1:]]
        if last != [(mark.content, mark.inputs, mark.origin)]:
            with self._writing():
                self._append_mark(study, mark)

    def _append_mark(self, study: str, mark: RecordsMark) -> None:
        self._connection.execute("INSERT OR IGNORE INTO running_sums VALUES (?, ?)", (_RECORDS, self.records_key()))
        self._append(DECLARED, _RECORDS, None, {**mark.to_dict(), "joined": study, "at": self._moment()})

    @cached_property
    def _new_key(self) -> bytes:
        return secrets.token_bytes(32)

    def slot(self, study: str) -> float | None:
        """Return the slot in seconds that a person here, or the study, chose for its answers, or None."""
        declared = [entry.body["slot"] for entry in self._of(_SLOT + study)]
        return declared[-1] if declared else None

    def declare_slot(self, study: str, slot: float) -> None:
        """Keep it for every later `join`. The same again is no entry."""
        if slot != self.slot(study):
            with self._writing():
                self._append(DECLARED, _SLOT + study, None, {"slot": slot, "at": self._moment()})

    def terms(self, limits: Limits) -> LedgerTerms:
        """Return the terms by which this ledger keeps the limits of a policy.

        Raises:
            ConfigurationError: the policy names other terms than this ledger was begun under.
            LedgerDamaged: the terms are of a later version.
        """
        declared = [entry.body for entry in self._of(_TERMS)]
        ledger_terms = LedgerTerms.from_dict(declared[-1]) if declared else LedgerTerms()
        # Slots and formats are no use of the data.
        return limits.terms(ledger_terms, is_new=all(entry.kind == DECLARED for entry in self._entries))

    def fix_terms(self, limits: Limits) -> LedgerTerms:
        """Write the terms down before the first study joins. The same again is no entry. Raises as `terms`."""
        terms, declared = self.terms(limits), [entry.body for entry in self._of(_TERMS)]
        if terms != (LedgerTerms.from_dict(declared[-1]) if declared else LedgerTerms()):
            with self._writing():
                self._append(DECLARED, _TERMS, None, {**terms.to_dict(), "at": self._moment()})
        return terms

    def whole_plans(self) -> dict[str, WholePlan]:
        """Return the studies that were admitted whole, by name."""
        opened = {entry.body["study"]: entry.body for entry in reversed(self._entries) if entry.kind == "opened"}
        whole = {study: body["whole_plan"] for study, body in opened.items() if body.get("whole_plan") is not None}
        return {study: WholePlan.from_dict(body) for study, body in whole.items()}

    def own_limits(self, policy: SitePolicy) -> tuple[OwnLimit, ...]:
        """Return the limits of a policy on what is charged round by round, as this ledger keeps them. Raises as
        `terms`.
        """
        return policy.own_limits(self.terms(policy.limits), self.whole_plans().values())

    def charges(self) -> list[Charge]:
        """Every charge that the hospital's own limits count, also for rounds whose update never became ready.

        A study that was admitted whole is not among them: its (ε, δ) is reserved beside them.
        """
        whole, kinds = self.whole_plans(), ("reserved", "charged-in-full")
        return [Charge.from_body(e.body) for e in self._entries if e.kind in kinds and e.body["study"] not in whole]

    def charged_round(self, study: str, round_number: int) -> ChargedRound | None:
        """The charge that paid for this round, if there is one."""
        entries = {entry.kind: entry for entry in self._of(study) if entry.round == round_number}
        if "reserved" not in entries:
            return None
        charge, settled = entries["reserved"], entries.get("settled")
        finished = None if settled is None else settled.body["sha256"]
        return ChargedRound(charge.sequence, charge.body["model_sha256"], finished, charge.body.get("attempt"))

    def rounds_known(self, study: str) -> set[int]:
        """Rounds that this ledger has charged, one by one or as lost."""
        return self._rounds(study, "reserved")

    def sent(self, study: str) -> list[Charge]:
        """Return the charges of a study of which something may have left: of finished rounds, and of lost ones."""
        # The last loss that was accepted holds every round up to it, also those that were charged one by one.
        lost, charges = self.rounds_lost(study), self._finished(study)
        losses = (entry for entry in self._of(study) if entry.kind == "charged-in-full")
        in_full = Counter(Charge.from_body(entry.body) for entry in losses if entry.body["rounds_lost"] == lost)
        # Which questions were lost the coordinator says. It leaves out none that this ledger knows.
        known_questions = Counter(charge for number, charge in charges.items() if number <= lost and charge.asks)
        later_charges = [charge for number, charge in charges.items() if number > lost]
        return [*(in_full | known_questions).elements(), *later_charges]

    def _finished(self, study: str) -> dict[int, Charge]:
        """Return the charges of finished rounds, by their numbers."""
        bodies = {entry.round: entry.body for entry in self._of(study) if entry.kind == "reserved"}
        settled = (entry.round for entry in self._of(study) if entry.kind == "settled" and entry.round is not None)
        return {number: Charge.from_body(bodies[number]) for number in settled}

    def rounds_trained(self, study: str) -> set[int]:
        """Those of `rounds_known` that are no query's."""
        return self.rounds_known(study) - self._queries(study)

    def attempts(self, study: str, *, except_round: int) -> set[int]:
        """Places in the study's noise schedule that this hospital has used up in other rounds than `except_round`.

        Lost rounds had no place beyond their number.
        """
        reserved = (entry for entry in self._of(study) if entry.kind == "reserved" and entry.round != except_round)
        places = {entry.body["attempt"] for entry in reserved if "attempt" in entry.body}
        return places | set(range(1, 1 + self.rounds_lost(study)))

    def rounds_lost(self, study: str) -> int:
        """Return n where rounds 1 … n were accepted as lost, or 0 without a loss."""
        lost = (entry.body["rounds_lost"] for entry in self._of(study) if entry.kind == "charged-in-full")
        return max(lost, default=0)

    def charge(
        self,
        study: str,
        round_number: int,
        charge: Charge,
        limits: tuple[OwnLimit, ...],
        model_sha256: str,
        approval: str | None = None,
        attempt: int | None = None,
    ) -> None:
        """Pay for one round, before anything of it is computed. A study that was admitted whole has paid for it.

        approval  identity of the decision of a person here under which it is answered
        attempt   its place in the study's noise schedule, which is used up with this entry

        Raises:
            OwnBudgetExceeded: a limit of this hospital would be passed. The ledger is unchanged.
        """
        # This process holds the ledger alone: nothing comes between the question and the charge.
        if study not in self.whole_plans():
            require_affordable(self.charges(), charge, limits)
        with self._writing():
            optional = {"approval": approval, "attempt": attempt}
            stated = {name: value for name, value in optional.items() if value is not None}
            self._append("reserved", study, round_number, {**asdict(charge), "model_sha256": model_sha256, **stated})

    def finish_update(
        self,
        study: str,
        round_number: int,
        *,
        sha256: str,
        size: int,
        sums: bytes | None,
        individual: bytes | None = None,
        reported: Mapping[str, Any] | None = None,
    ) -> None:
        """The update of a charged round lies finished on the disk: its digest and what it cost, in one commit.

        sums        the study's running sums
        individual  the patients' own sums over all studies
        reported    what it tells of its cost, to hold the coordinator's ledger against
        """
        charged = self.charged_round(study, round_number)
        if charged is None:
            raise LedgerDamaged(f"round {round_number} of study {study} was computed without a charge")
        with self._writing():
            self._append("settled", study, round_number, {"sha256": sha256, "bytes": size, "reported": reported})
            for key, data in ((study, sums), (_INDIVIDUAL, individual)):
                if data is not None:
                    self._connection.execute("INSERT OR REPLACE INTO running_sums VALUES (?, ?)", (key, data))
            self._ready(study, round_number, "update", sha256, size, charged.sequence)

    def ready_refusal(self, study: str, round_number: int, *, sha256: str, size: int) -> None:
        """A refusal is about to leave."""
        with self._writing():
            self._ready(study, round_number, "refusal", sha256, size, None)

    def mark_answered(self, study: str, round_number: int, sha256: str, answer: str, *, accepted: bool = False) -> None:
        """Record the coordinator's answer to a body that left. A second answer to it is ignored.

        accepted  it acknowledged a body that it may have learnt from, for any outcome of the round
        """
        with self._writing():
            self._connection.execute(
                "UPDATE egress_log SET answer = ?, sent_at = ?, taken = ?"
                " WHERE study = ? AND round = ? AND sha256 = ? AND sent_at IS NULL",
                (answer, self._moment(), accepted, study, round_number, sha256),
            )

    def own_round(self, study: str, round_number: int) -> OwnRound:
        """Return what is known here of the hospital's own part in a round of `study`."""
        query = "SELECT MAX(taken) FROM egress_log WHERE study = ? AND round = ? AND what = 'update'"
        (accepted,) = self._connection.execute(query, (study, round_number)).fetchone()
        settled = next((e.body for e in self._of(study) if e.kind == "settled" and e.round == round_number), None)
        return OwnRound(bool(accepted), settled is not None, None if settled is None else settled["reported"])

    def accept_loss(self, study: str, rounds: int, charges: Sequence[Charge]) -> None:
        """A person said that the ledger of rounds 1 … `rounds` is lost: these charges are all that they can have
        cost."""
        with self._writing():
            for place, charge in enumerate(charges):
                # One entry of a kind has a round's number. Those without a number repeat.
                self._append(
                    "charged-in-full", study, None if place else rounds, {**asdict(charge), "rounds_lost": rounds}
                )
            # Sums that miss rounds would be too small. They begin again from the worst case.
            self._connection.execute("DELETE FROM running_sums WHERE study = ?", (study,))

    def finish_study(self, study: str, reason: str) -> None:
        """Record the end of the study, once."""
        if all(entry.kind != "finished" for entry in self._of(study)):
            with self._writing():
                self._append("finished", study, None, {"reason": reason})

    def sums(self, study: str) -> bytes | None:
        """The study's running sums as they were last written."""
        row = self._connection.execute("SELECT data FROM running_sums WHERE study = ?", (study,)).fetchone()
        return None if row is None else row[0]

    def individual(self) -> bytes | None:
        """The patients' own sums as they were last written."""
        return self.sums(_INDIVIDUAL)

    def sent_since(self, sequence: int) -> list[Charge]:
        """Charges of rounds that were finished, or accepted as lost, in entries after `sequence`."""
        paid = {(e.body["study"], e.round): e.body for e in self._entries if e.kind == "reserved"}
        later = [e for e in self._entries if e.sequence > sequence]
        bodies = [paid[e.body["study"], e.round] if e.kind == "settled" else e.body for e in later if e.kind in _SENT]
        return [Charge.from_body(body) for body in bodies]

    def seen_ledger(self, study: str) -> SeenLedger:
        """The coordinator's ledger as it was last looked at."""
        return SeenLedger(self._connection, self._writing, study)

    def departures(self, study: str | None = None) -> list[Departure]:
        """The egress log: everything that left or may have left, oldest first."""
        rows = self._connection.execute(
            "SELECT study, round, what, sha256, bytes, charge, ready_at, answer, sent_at FROM egress_log"
            " WHERE ? IS NULL OR study = ? ORDER BY number",
            (study, study),
        )
        return [Departure(*row) for row in rows]

    def _under_way(self) -> list[str]:
        """Studies that this hospital takes part in and that have not ended."""
        ended = {entry.body["study"] for entry in self._entries if entry.kind == "finished"}
        studies = dict.fromkeys(entry.body["study"] for entry in self._entries if entry.kind == "opened")
        return [study for study in studies if study not in ended]

    def _rounds(self, study: str, kind: Kind) -> set[int]:
        """Rounds of the study with an entry of this kind, and those that were lost."""
        one_by_one = {entry.round for entry in self._of(study) if entry.kind == kind and entry.round is not None}
        return one_by_one | set(range(1, self.rounds_lost(study) + 1))

    def _queries(self, study: str) -> set[int]:
        """Rounds that answered a query, or began to."""
        paid = (entry for entry in self._of(study) if entry.kind == "reserved" and entry.round is not None)
        return {entry.round or 0 for entry in paid if entry.body["asks"]}

    def evaluations(self, study: str, bears: str = "evaluated", *, except_round: int | None = None) -> list[str]:
        """Digests of the questions about released models that were answered, or begun, by who bears their loss.

        One for each round but `except_round`.
        """
        reserved = (entry for entry in self._of(study) if entry.kind == "reserved" and entry.round != except_round)
        return [entry.body["model_sha256"] for entry in reserved if entry.body["bears"] == bears]

    def subjects_under(self, study: str, approval: str | None, *, except_round: int | None = None) -> list[str]:
        """Return what was paid for in rounds other than `except_round` under one approval. None: without one."""
        paid = (e.body for e in self._of(study) if e.kind == "reserved" and e.round != except_round)
        return [body["model_sha256"] for body in paid if body.get("approval") == approval]

    def _ready(self, study: str, round_number: int, kind: BodyKind, sha256: str, size: int, charge: int | None) -> None:
        """Write a body down before its first byte leaves. A body that is made ready twice is one line."""
        self._connection.execute(
            "INSERT OR IGNORE INTO egress_log (study, round, what, sha256, bytes, charge, ready_at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (study, round_number, kind, sha256, size, charge, self._moment()),
        )
