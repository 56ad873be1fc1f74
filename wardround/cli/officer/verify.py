"""The command `wardround ledger verify`: check a ledger from its first entry, over the network or from a file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from study_protocol.secure_sum.promises import sums
from wardround.cli.officer.witnesses import Colluders, Fingerprint, Witnesses
from wardround.cli.shared.shared import (
    AsJson,
    Home,
    KeyFile,
    Server,
    StudyName,
    asks_with_key,
    hospital,
    not_here,
    number,
    plain_errors,
    print_json,
    reader,
    say,
    table,
)

if TYPE_CHECKING:
    from accounting.budget.ledger import Entry
    from client_sdk.api.client import Client
    from client_sdk.identity import Membership
    from client_sdk.study.audit import Audited
    from study_protocol.study.messages import BudgetStatement, LedgerPage, Roster, SignedLedgerHead, WitnessedHead

File = Annotated[Path | None, typer.Option("--file", help="export to check without a network")]
CoordinatorKey = Annotated[
    str | None,
    typer.Option(
        "--coordinator-key",
        help="the coordinator's key or its fingerprint, as `wardround doctor` prints it at a hospital",
    ),
]
Dataset = Annotated[str, typer.Option("--dataset", help="name of the records that this hospital takes part with")]


@dataclass(frozen=True)
class AskingHospital:
    """The asking hospital's own knowledge of a study, with one data set.

    settings_sha256  digest of the settings that it joined under. None: not with this data set
    other_data_sets  the data sets that it joined with instead, as the end of a sentence
    seen_entries     the number of ledger entries that it saw, with the hash of the last. 0: none
    """

    membership: Membership
    own_key: str
    dataset: str
    settings_sha256: str | None
    seen_entries: int
    seen_sha256: str
    other_data_sets: str

    def compared(self, entries: Sequence[Entry], settings_sha256: str) -> list[str]:
        """Return in words what holds beyond the public checks.

        Raises:
            LedgerNotExtended: the settings are not those that it joined under, or this is not the ledger that it saw.
        """
        from client_sdk.errors import LedgerNotExtended

        if self.settings_sha256 is None:
            return [
                f"data set {self.dataset} takes no part here, so no knowledge of this hospital was compared"
                f"{self.other_data_sets}"
            ]
        if self.settings_sha256 != settings_sha256:
            raise LedgerNotExtended("the settings in entry 1 are not those that this hospital joined under")
        words = ["these are the settings that this hospital joined under"]
        if not self.seen_entries:
            return words
        if self.seen_entries > len(entries):
            raise LedgerNotExtended(f"this hospital saw {self.seen_entries} entries, and {len(entries)} are shown")
        if entries[self.seen_entries - 1].sha256 != self.seen_sha256:
            raise LedgerNotExtended(
                f"entry {self.seen_entries} is not the one that this hospital saw: compare `ledger seen`"
            )
        return [*words, f"entries 1 to {self.seen_entries} are those that this hospital saw"]


@dataclass(frozen=True)
class Trusted:
    """The key that must have signed the head, the reason to trust it, and the asking hospital, if there is one."""

    key: str
    reason: str
    hospital: AskingHospital | None = None


@dataclass(frozen=True)
class LedgerExport:
    """The documents that come with a ledger: the signed head, the roster, and the hospitals' signatures."""

    coordinator_key: str
    head: SignedLedgerHead
    roster: Roster
    witnesses: Sequence[WitnessedHead]


def verify(
    study: StudyName,
    file: File = None,
    coordinator_key: CoordinatorKey = None,
    dataset: Dataset = "records",
    server: Server = None,
    key_file: KeyFile = None,
    home: Home = None,
    roster: Fingerprint = None,
    colluders: Colluders = None,
    as_json: AsJson = False,
) -> None:
    """Check a study's ledger: every entry, the plan, and every ε from the raw events. Show who signed it."""
    from client_sdk.study.verifier import strangers

    with plain_errors():
        if file is not None:
            entries, export = read_export(file)
            trusted, budget_shown = named_key(coordinator_key, export.coordinator_key, needed=True), None
        else:
            with reader(study, server, key_file, home) as client:
                # Both come first: the ledger may grow meanwhile, and the seen and stated entries must lie within it.
                trusted = trust(client, study, coordinator_key, key_file, home, dataset)
                budget_shown = client.budget(study)
                entries, page = fetch(client, study)
                export = LedgerExport(trusted.key, page.head, client.roster(study), page.witnesses)
        audit, rows = _checked(study, entries, export.head, trusted, budget_shown)
        words = [f"the newest entry (the ledger's head) is signed with {trusted.reason}", *audit.words()]
        words += [f"under masks: {line}" for line in sums(audit.settings.privacy.masking)]
        unknown = None
        if (asks := trusted.hospital) is not None:
            words += asks.compared(entries, audit.settings.digest())
            pinned = asks.membership.pinned is not None
            unknown = strangers(asks.membership, export.roster, asks.own_key) if pinned else None
        vouched = Witnesses.of(entries, export.roster, export.witnesses, roster, colluders, unknown)
    if as_json:
        answer = {"study": study, "entries": len(entries), "head": audit.head, "limits": rows, "found": words}
        print_json(answer | {"witnesses": vouched.to_json()})
        return
    columns = ["level", "definition", "shown", "recomputed"]
    cells = [[r["level"], r["definition"], number(r["shown"]), number(r["recomputed"])] for r in rows]
    table(f"{study}: {len(entries)} entries, chain and signature good", columns, cells)
    for line in words:
        say(line)
    vouched.show()


def _checked(
    study: str,
    entries: Sequence[Entry],
    signed: SignedLedgerHead,
    trusted: Trusted,
    budget_shown: BudgetStatement | None,
) -> tuple[Audited, list[dict[str, Any]]]:
    from client_sdk.errors import LedgerNotExtended
    from client_sdk.study.audit import audited, require_signed
    from study_protocol.documents.compare import difference, in_form_of, tolerance_of

    require_signed(trusted.key, study, signed, entries)
    audit = audited(study, entries)
    if budget_shown is None:
        limits = audit.budget.statements()
        return audit, _compare(limits, limits)
    if not 0 < budget_shown.ledger.entries <= len(entries):
        raise LedgerNotExtended("the budget that is shown refers to entries that the ledger does not have")
    if entries[budget_shown.ledger.entries - 1].sha256 != budget_shown.ledger.head.removeprefix("sha256:"):
        raise LedgerNotExtended("the budget that is shown does not belong to this ledger")
    then = audited(study, entries[: budget_shown.ledger.entries])
    stated, recomputed = [limit.model_dump(mode="json") for limit in budget_shown.limits], then.budget.statements()
    rows, tolerance = _compare(recomputed, stated), tolerance_of(recomputed)
    if not all(_agrees(row["shown"], row["recomputed"], tolerance) for row in rows):
        raise LedgerNotExtended("the budget that is shown is not the one that the ledger gives")
    budget = then.budget
    # A missing or invented limit is found below.
    if len(stated) == len(recomputed):
        recomputed = [in_form_of(*pair) for pair in zip(stated, recomputed, strict=True)]
    stated_budget = {
        "round": budget_shown.round,
        "max_steps": budget_shown.max_steps,
        "can_continue": budget_shown.can_continue,
        "limits": stated,
    }
    found_again = {"round": budget.last_round, "max_steps": budget.plan.max_steps, "can_continue": budget.can_continue}
    found_again |= {"limits": recomputed}
    if (different := difference(stated_budget, found_again, "budget", tolerance=tolerance)) is not None:
        raise LedgerNotExtended(f"the budget that is shown is not the one that the ledger gives: {different}")
    return audit, rows


def trust(
    client: Client, study: str, given_key: str | None, key_file: Path | None, home: Path | None, dataset: str
) -> Trusted:
    """Return the key pinned at enrolment if a hospital asks, else the named key, else the key that is shown."""
    if not asks_with_key(client.connection.url, key_file, home):
        return _pinned(study, home, dataset)
    return named_key(given_key, client.study(study).coordinator_key, needed=False)


def _pinned(study: str, home: Path | None, dataset: str) -> Trusted:
    from client_sdk.guard.ledger import HospitalLedger
    from client_sdk.guard.ledger_file import ledger_path
    from client_sdk.guard.seen_ledger import SeenHead
    from study_protocol.wire.signing import encode_public_key

    asking_hospital = hospital(home)
    directory, membership = asking_hospital.identity.directory, asking_hospital.identity.membership(study)
    path, joined, seen_head = ledger_path(directory, dataset), None, SeenHead()
    if path.exists():
        with HospitalLedger.open(path, read_only=True) as ledger:
            opened, seen_head = ledger.opened(study), ledger.seen_ledger(study).head
        joined = None if opened is None else str(opened["settings_sha256"])
    own_key, other_data_sets = (
        encode_public_key(asking_hospital.identity.key.public_key()),
        not_here(directory, dataset),
    )
    asks = AskingHospital(membership, own_key, dataset, joined, seen_head.sequence, seen_head.sha256, other_data_sets)
    return Trusted(membership.coordinator_key, "the key that was pinned at enrolment", asks)


def named_key(given_key: str | None, shown_key: str, *, needed: bool) -> Trusted:
    """Return the key that a person named, by itself or by its fingerprint.

    Raises:
        ConfigurationError: no key is named although one is needed.
        LedgerNotExtended: the coordinator shows another key.
    """
    from client_sdk.api.answered import names
    from client_sdk.errors import ConfigurationError, LedgerNotExtended
    from study_protocol.wire.signing import SigningError, decode_public_key, fingerprint

    try:
        mark = fingerprint(decode_public_key(shown_key))
    except SigningError as error:
        raise LedgerNotExtended("the coordinator shows a key that is not valid") from error
    if given_key is not None:
        if not names(given_key, shown_key, mark):
            raise LedgerNotExtended("the coordinator's key is not the one that you named")
        return Trusted(shown_key, "the key that you named")
    if needed:
        raise ConfigurationError(
            "name the coordinator's key with --coordinator-key: its fingerprint, as `wardround doctor` prints it at a "
            "hospital that takes part"
        )
    return Trusted(shown_key, f"the key that the coordinator shows, which was not compared: fingerprint {mark}")


def fetch(client: Client, study: str) -> tuple[list[Entry], LedgerPage]:
    """Return every entry up to the head of the last page, and that page. The chain is verified from its first entry.

    Raises:
        LedgerNotExtended: the chain is broken or empty, or does not lead to the head.
    """
    from accounting.budget.ledger import Entry, LedgerError, verify_chain
    from client_sdk.errors import LedgerNotExtended

    entries: list[Entry] = []
    try:
        while True:
            page = client.ledger(study, len(entries))
            entries += [Entry.from_dict(entry.model_dump(mode="json")) for entry in page.entries]
            # An empty page ends it, too. Otherwise the loop would never end if the head is never reached.
            if not page.entries or len(entries) >= page.head.head.entries:
                break
        reached = verify_chain(entries)
    except LedgerError as error:
        raise LedgerNotExtended(str(error)) from error
    if not entries or reached != (page.head.head.entries, page.head.head.sha256):
        raise LedgerNotExtended(
            "the entries do not lead to the newest one that the coordinator signed, the ledger's head"
        )
    return entries, page


def read_export(path: Path) -> tuple[list[Entry], LedgerExport]:
    """Return the entries of an export, and the documents in its last line.

    Raises:
        LedgerNotExtended: the file is no export. The message names the line.
    """
    from pydantic import TypeAdapter, ValidationError

    from accounting.budget.ledger import Entry, LedgerError
    from client_sdk.errors import LedgerNotExtended
    from study_protocol.study.messages import Roster, SignedLedgerHead, WitnessedHead
    from study_protocol.wire.documents import load_json

    lines = path.read_bytes().splitlines()
    parsed: list[dict[str, Any]] = []
    for place, line in enumerate(lines, start=1):
        try:
            value = load_json(line)
        except ValueError as error:
            raise LedgerNotExtended(f"line {place} of the export is no JSON: {error}") from error
        if not isinstance(value, dict):
            raise LedgerNotExtended(f"line {place} of the export is no entry")
        parsed.append(cast("dict[str, Any]", value))
    if not parsed or set(parsed[-1]) != {"head", "coordinator_key", "roster", "witnesses"}:
        raise LedgerNotExtended("the export does not end with the signed head: export the ledger again")
    last = parsed.pop()
    try:
        export = LedgerExport(
            str(last["coordinator_key"]),
            SignedLedgerHead.model_validate(last["head"]),
            Roster.model_validate(last["roster"]),
            TypeAdapter(list[WitnessedHead]).validate_python(last["witnesses"]),
        )
        return [Entry.from_dict(value) for value in parsed], export
    except LedgerError as error:
        raise LedgerNotExtended(str(error)) from error
    except ValidationError as error:
        raise LedgerNotExtended("the export does not end with a signed head") from error


def _agrees(stated: float | None, recomputed: float | None, tolerance: float) -> bool:
    # Another processor may round the last bits of a float in another way.
    if stated is None or recomputed is None:
        return stated is recomputed
    return math.isclose(stated, recomputed, rel_tol=tolerance)


def _compare(recomputed_limits: list[dict[str, Any]], stated_limits: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    recomputed = {(limit["level"], limit["definition"]): limit["spent"] for limit in recomputed_limits}
    for limit in stated_limits:
        level, definition = limit["level"], limit["definition"]
        recomputed_spent = recomputed.get((level, definition))
        rows.append({"level": level, "definition": definition, "shown": limit["spent"], "recomputed": recomputed_spent})
    return rows
