"""Commands of the group `wardround roster`: who the hospitals of a study are, and the pin of their keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from study_protocol.study.lacking import columns_that_may_lack
from wardround.cli.shared.person_options import PersonOptions, with_person
from wardround.cli.shared.shared import (
    AsJson,
    Home,
    KeyFile,
    Server,
    StudyName,
    asks_with_key,
    hospital,
    plain_errors,
    print_json,
    reader,
    say,
    since,
    table,
)

if TYPE_CHECKING:
    from client_sdk.api.client import Client
    from study_protocol.study.messages import Roster
    from study_protocol.study.site_versions import SiteVersions

Fingerprint = Annotated[
    list[str],
    typer.Argument(help="number of the roster, as the other hospitals read it to you: twelve groups of five digits"),
]


def show(
    study: StudyName,
    server: Server = None,
    key_file: KeyFile = None,
    home: Home = None,
    qr: Annotated[
        bool, typer.Option("--qr", help="also show the number as a QR code, for a camera at the other hospital")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show a study's hospitals, the fingerprints of their keys, their programs, and the roster's number to compare."""
    from client_sdk.study.pinning import as_digits, as_qr_code
    from client_sdk.study.sites import find_site_versions
    from client_sdk.study.verifier import active_fingerprint

    with plain_errors(), reader(study, server, key_file, home) as client:
        roster, lacks, versions = client.roster(study), _lacks(client, study), find_site_versions(client, study)
        if as_json:
            programs = {} if versions is None else {"versions": versions.model_dump(mode="json")}
            print_json(roster.model_dump(mode="json") | ({"lacks": lacks} if lacks else {}) | programs)
            return
        _show_members(roster, lacks)
        if versions is not None:
            _show_versions(versions)
        digits = as_digits(active_fingerprint(roster))
        say(f"number of this roster, computed here:\n\n    {digits}\n")
        if qr:
            say(as_qr_code(digits))
        if asks_with_key(server, key_file, home):
            say(
                "The hospitals compare this number with each other by telephone, and each one pins it. You asked with "
                "an API key, which pins no roster."
            )
            return
        say(
            "Telephone every hospital in the roster, on a number that the coordinator did not give you. Ask if it is "
            f"in the study and reads the same number. Then run: wardround roster pin {study} {digits}"
        )


def _lacks(client: Client, study: str) -> dict[str, list[str] | None]:
    """Return hospital -> columns that it lacks, None: not told. Empty: the study lets no site lack a column."""
    if not columns_that_may_lack(client.study(study).settings.as_json()):
        return {}
    hospitals = client.lacking_columns(study).hospitals
    return {each.client: None if each.columns is None else list(each.columns) for each in hospitals}


def _show_members(roster: Roster, lacks: dict[str, list[str] | None]) -> None:
    from study_protocol.wire.signing import decode_public_key, fingerprint

    rows = [
        [member.client, member.state, fingerprint(decode_public_key(member.public_key))] for member in roster.members
    ]
    if lacks:
        rows = [[*row, _lacks_in_words(lacks.get(row[0]))] for row in rows]
    table(f"Roster of {roster.study}", ["hospital", "state", "key", *(["lacks"] if lacks else [])], rows)


def _show_versions(versions: SiteVersions) -> None:
    rows = [
        [
            site.client,
            site.version or "",
            "" if site.protocol is None else str(site.protocol),
            "" if site.since is None else since(site.since),
            site.remark,
        ]
        for site in versions.hospitals
    ]
    table(f"Programs in {versions.study}", ["hospital", "version", "protocol", "since", "remark"], rows)
    say(
        f"The study needs protocol {versions.needed_protocol}. The coordinator runs version "
        f"{versions.coordinator_version}, which speaks protocol {versions.coordinator_protocol}."
    )


def _lacks_in_words(columns: list[str] | None) -> str:
    return "not told" if columns is None else ", ".join(columns) or "none"


@with_person
def pin(study: StudyName, number: Fingerprint, home: Home = None, *, person: PersonOptions) -> None:
    """Pin the roster after you compared its number with the other hospitals. Hospitals that leave need no new pin."""
    from client_sdk.study.pinning import pin_roster

    with plain_errors():
        standing = pin_roster(hospital(home), study, "".join(number), person.acting())
        effective = standing.effective
        say(f"not pinned: {standing.in_words}" if effective is None else f"pinned: {effective.subject.words}")
