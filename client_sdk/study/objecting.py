"""How a hospital takes an objection in: first on the list, which counts from the next round on, then in its ledger."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from client_sdk.errors import ConfigurationError, WardroundError
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.objections import Objection, ObjectionLedger
from client_sdk.guard.people import DecidingPerson
from client_sdk.guard.policy import SitePolicy
from study_protocol.cells.identity import objection_key
from study_protocol.wire.failpoints import failpoint, register

register("objection.before-list", "objection.after-list", "objection.after-entry")


@dataclass(frozen=True)
class TakenObjection:
    """One objection, once it is on the list and in the ledger.

    is_new      the patient objects for the first time. Else it was at `objection.since`
    was_listed  the list named the patient before
    """

    objection: Objection
    is_new: bool
    was_listed: bool


def take_objections(
    home: Path, policy: SitePolicy, identities: Sequence[str], person: DecidingPerson
) -> list[TakenObjection]:
    """Leave patients out from the next round on, and record that they objected.

    The list is written first: a process that ends in between has left the patients out. The same command again then
    writes the entry that lacks.

    identities  each as `identity_of` returns it

    Raises:
        ConfigurationError: the policy has no list, the list holds a wrong line, or a reason is missing.
        LedgerDamaged, LedgerInUse, LedgerNotWritten: of the ledger of objections. The patients may be on the list.
        OSError: the list cannot be written. It is unchanged, and so is the ledger.
    """
    file = policy.exclusion_file
    if file is None:
        raise ConfigurationError("this policy was not read from a file: it has no list to which a patient can be added")
    if policy.approval.needs_reason and not person.reason:
        raise ConfigurationError("the site policy asks for a reason (needs_reason): add --reason with one sentence")
    with ObjectionLedger.open_in(home) as ledger:
        listed_keys = {objection_key(entry.identity) for entry in policy.current().exclusions.entries}
        # Off the list, the patient may have been in any round since. So says an entry that a process leaves which ends
        # before the last one.
        lapsed = [each for each in identities if objection_key(each) not in listed_keys and ledger.find(each)]
        ledger.renew(lapsed, person, dict.fromkeys(last_entries(home)))
        failpoint("objection.before-list")
        file.add(identity for identity in identities if objection_key(identity) not in listed_keys)
        failpoint("objection.after-list")
        # After the list: a running study reads the list once more when the charge of a round is in its ledger.
        last = last_entries(home)
        ledger.renew(lapsed, person, last)
        new_objections = ledger.record(identities, person, last)
        failpoint("objection.after-entry")
        return _summary(ledger, identities, new_objections, listed_keys)


def _summary(
    ledger: ObjectionLedger, identities: Sequence[str], new_objections: Sequence[Objection], listed_keys: Set[str]
) -> list[TakenObjection]:
    """Return what became of each patient, each once. listed_keys: of the patients who were on the list before."""
    by_number: dict[int, TakenObjection] = {}
    new_numbers = {each.number for each in new_objections}
    for identity in identities:
        objection = ledger.find(identity)
        if objection is not None and objection.number not in by_number:
            was_listed = objection_key(identity) in listed_keys
            by_number[objection.number] = TakenObjection(objection, objection.number in new_numbers, was_listed)
    return list(by_number.values())


def last_entries(home: Path) -> dict[str, int | None]:
    """Return the number of the last entry in the ledger of each data set, None of one that cannot be read."""
    numbers: dict[str, int | None] = {}
    for path in ledger_files(home):
        try:
            with HospitalLedger.open(path, read_only=True) as ledger:
                numbers[path.stem] = ledger.next_sequence - 1
        # A patient is left out also where one ledger is damaged. The letter says so.
        except WardroundError:
            numbers[path.stem] = None
    return numbers


def ledger_files(home: Path) -> list[Path]:
    """Return the files of the ledgers of a hospital's data sets, by name."""
    return sorted((home / "ledgers").glob("*.db"))
