"""`wardround ledger verify`: a coordinator's ledger, over the network or from a file, checked from its first entry."""

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

File = Annotated[Path | None, typer.Option("--file", help="an export, checked without a network")]
CoordinatorKey = Annotated[
    str | None,
    typer.Option(
        "--coordinator-key",
        help="the coordinator's key or its fingerprint, as a hospital's `wardround doctor` prints it",
    ),
]
Dataset = Annotated[str, typer.Option("--dataset", help="name of the records that this hospital takes part with")]


@dataclass(frozen=True)
class Joined:
    """What the hospital that asks knows itself, with one data set.

    settings_sha256  under which settings it joined; None: not with this data set, and `where` says with which others
    seen             up to which entry it saw the ledger, and the hash of that one; 0: none
    """

    membership: Membership
    own_key: str
    dataset: str
    settings_sha256: str | None
    seen: int
    seen_sha256: str
    where: str

    def compared(self, entries: Sequence[Entry], settings_sha256: str) -> list[str]:
        """What holds beside what anybody can check, in words.

        Raises:
            LedgerNotExtended: other settings than it joined under, or not the ledger that it saw.
        """
        from client_sdk.errors import LedgerNotExtended

        if self.settings_sha256 is None:
            return [
                f"data set {self.dataset} takes no part here: nothing of this hospital's own was compared{self.where}"
            ]
        if self.settings_sha256 != settings_sha256:
            raise LedgerNotExtended("the settings in entry 1 are not those that this hospital joined under")
        words = ["these are the settings that this hospital joined under"]
        if not self.seen:
            return words
        if self.seen > len(entries):
            raise LedgerNotExtended(f"this hospital saw {self.seen} entries, and {len(entries)} are shown")
        if entries[self.seen - 1].sha256 != self.seen_sha256:
            raise LedgerNotExtended(f"entry {self.seen} is not the one that this hospital saw: compare `ledger seen`")
        return [*words, f"entries 1 to {self.seen} are those that this hospital saw"]


@dataclass(frozen=True)
class Trusted:
    """Whose signature must be on the head, why that key is believed, and the hospital that asks, if one does."""

    key: str
    why: str
    hospital: Joined | None = None


@dataclass(frozen=True)
class Told:
    """What is told with a ledger: the signed head, and the hospitals' signatures."""

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
    """Check every entry, the plan against the settings, every ε from the raw events, and say who vouches for them."""
    from client_sdk.study.verifier import strangers

    with plain_errors():
        if file is not None:
            entries, told = read_export(file)
            trusted, shown = named_key(coordinator_key, told.coordinator_key, needed=True), None
        else:
            with reader(study, server, key_file, home) as client:
                # Both first: the ledger may grow meanwhile, and what was seen and shown must be somewhere inside it.
                trusted = trust(client, study, coordinator_key, key_file, home, dataset)
                shown = client.budget(study)
                entries, page = fetch(client, study)
                told = Told(trusted.key, page.head, client.roster(study), page.witnesses)
        found, rows = _checked(study, entries, told.head, trusted, shown)
        words = [f"the newest entry (the ledger's head) is signed with {trusted.why}", *found.words()]
        words += [f"under masks: {line}" for line in sums(found.settings.privacy.masking)]
        unknown = None
        if (asks := trusted.hospital) is not None:
            words += asks.compared(entries, found.settings.digest())
            pinned = asks.membership.pinned is not None
            unknown = strangers(asks.membership, told.roster, asks.own_key) if pinned else None
        vouched = Witnesses.of(entries, told.roster, told.witnesses, roster, colluders, unknown)
    if as_json:
        answer = {"study": study, "entries": len(entries), "head": found.head, "limits": rows, "found": words}
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
    shown: BudgetStatement | None,
) -> tuple[Audited, list[dict[str, Any]]]:
    from client_sdk.errors import LedgerNotExtended
    from client_sdk.study.audit import audited, require_signed
    from study_protocol.documents.compare import difference, in_form_of

    require_signed(trusted.key, study, signed, entries)
    found = audited(study, entries)
    if shown is None:
        limits = found.budget.statements()
        return found, _compare(limits, limits)
    if not 0 < shown.ledger.entries <= len(entries):
        raise LedgerNotExtended("the budget that is shown stands on entries that the ledger does not have")
    if entries[shown.ledger.entries - 1].sha256 != shown.ledger.head.removeprefix("sha256:"):
        raise LedgerNotExtended("the budget that is shown does not hang on this ledger")
    then = audited(study, entries[: shown.ledger.entries])
    stated, recomputed = [limit.model_dump(mode="json") for limit in shown.limits], then.budget.statements()
    rows = _compare(recomputed, stated)
    if not all(_same(row["shown"], row["recomputed"]) for row in rows):
        raise LedgerNotExtended("the budget that is shown is not the one that the ledger gives")
    budget = then.budget
    # A limit that was left out or made up is found below.
    if len(stated) == len(recomputed):
        recomputed = [in_form_of(*pair) for pair in zip(stated, recomputed, strict=True)]
    said = {"round": shown.round, "max_steps": shown.max_steps, "can_continue": shown.can_continue, "limits": stated}
    found_again = {"round": budget.last_round, "max_steps": budget.plan.max_steps, "can_continue": budget.can_continue}
    if (different := difference(said, found_again | {"limits": recomputed}, "budget")) is not None:
        raise LedgerNotExtended(f"the budget that is shown is not the one that the ledger gives: {different}")
    return found, rows


def trust(
    client: Client, study: str, given: str | None, key_file: Path | None, home: Path | None, dataset: str
) -> Trusted:
    """The key pinned at enrolment where a hospital asks; else the one a person named; else the one that is shown."""
    if not asks_with_key(key_file, home):
        return _pinned(study, home, dataset)
    return named_key(given, client.study(study).coordinator_key, needed=False)


def _pinned(study: str, home: Path | None, dataset: str) -> Trusted:
    from client_sdk.guard.ledger import HospitalLedger
    from client_sdk.guard.ledger_file import ledger_path
    from client_sdk.guard.seen import SeenHead
    from study_protocol.wire.signing import encode_public_key

    here = hospital(home)
    directory, membership = here.identity.directory, here.identity.membership(study)
    path, joined, seen = ledger_path(directory, dataset), None, SeenHead()
    if path.exists():
        with HospitalLedger.open(path, read_only=True) as ledger:
            opened, seen = ledger.opened(study), ledger.seen_ledger(study).head
        joined = None if opened is None else str(opened["settings_sha256"])
    own_key, where = encode_public_key(here.identity.key.public_key()), not_here(directory, dataset)
    asks = Joined(membership, own_key, dataset, joined, seen.sequence, seen.sha256, where)
    return Trusted(membership.coordinator_key, "the key that was pinned at enrolment", asks)


def named_key(given: str | None, shown: str, *, needed: bool) -> Trusted:
    """The key that a person named, by itself or by its fingerprint.

    Raises:
        ConfigurationError: none is named, and there is nobody to ask.
        LedgerNotExtended: the coordinator shows another one.
    """
    from client_sdk.api.answered import names
    from client_sdk.errors import ConfigurationError, LedgerNotExtended
    from study_protocol.wire.signing import SigningError, decode_public_key, fingerprint

    try:
        mark = fingerprint(decode_public_key(shown))
    except SigningError as error:
        raise LedgerNotExtended("what is shown as the coordinator's key is none") from error
    if given is not None:
        if not names(given, shown, mark):
            raise LedgerNotExtended("the coordinator's key is not the one that you named")
        return Trusted(shown, "the key that you named")
    if needed:
        raise ConfigurationError(
            "name the coordinator's key with --coordinator-key: its fingerprint, as `wardround doctor` prints it at a "
            "hospital that takes part"
        )
    return Trusted(shown, f"the key that the coordinator shows, which nobody compared: fingerprint {mark}")


def fetch(client: Client, study: str) -> tuple[list[Entry], LedgerPage]:
    """Every entry up to the head of the last page, which comes with them; the chain verified from the first.

    Raises:
        LedgerNotExtended: the chain is broken, empty, or does not lead to the head.
    """
    from accounting.budget.ledger import Entry, LedgerError, verify_chain
    from client_sdk.errors import LedgerNotExtended

    entries: list[Entry] = []
    try:
        while True:
            page = client.ledger(study, len(entries))
            entries += [Entry.from_dict(entry.model_dump(mode="json")) for entry in page.entries]
            # An empty page ends it too, else a head that is never reached would be asked for without end.
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


def read_export(path: Path) -> tuple[list[Entry], Told]:
    """The entries of an export, and what its last line tells.

    Raises:
        LedgerNotExtended: it is none; names the line.
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
        raise LedgerNotExtended("the export does not end with the signed head: export the ledger anew")
    last = parsed.pop()
    try:
        told = Told(
            str(last["coordinator_key"]),
            SignedLedgerHead.model_validate(last["head"]),
            Roster.model_validate(last["roster"]),
            TypeAdapter(list[WitnessedHead]).validate_python(last["witnesses"]),
        )
        return [Entry.from_dict(value) for value in parsed], told
    except LedgerError as error:
        raise LedgerNotExtended(str(error)) from error
    except ValidationError as error:
        raise LedgerNotExtended("the export does not end with a signed head") from error


def _same(shown: float | None, recomputed: float | None) -> bool:
    # Another processor may round the last bits of a float in another way.
    if shown is None or recomputed is None:
        return shown is recomputed
    return math.isclose(shown, recomputed, rel_tol=1e-9)


def _compare(found: list[dict[str, Any]], shown: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    recomputed = {(limit["level"], limit["definition"]): limit["spent"] for limit in found}
    for limit in shown:
        level, definition = limit["level"], limit["definition"]
        again = recomputed.get((level, definition))
        rows.append({"level": level, "definition": definition, "shown": limit["spent"], "recomputed": again})
    return rows
