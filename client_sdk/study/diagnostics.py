"""The checks of `wardround doctor`, one finding each. No state is changed and no secret is shown."""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from client_sdk.api.client import Client, Signature
from client_sdk.api.config import ClientSettings, Connection
from client_sdk.api.transport import DOCTOR_HINT, NOT_TRUSTED_HERE, Transport, proxy_of, require_safe_url
from client_sdk.errors import ApiError, ConfigurationError, LedgerInUse, ServerFailure, WardroundError
from client_sdk.guard.decision import Subject
from client_sdk.guard.decisions import DECISIONS_FILE, decisions_in
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from client_sdk.guard.objections import OBJECTIONS_LEDGER, ObjectionLedger
from client_sdk.guard.policy import POLICY_FILE, SitePolicy
from client_sdk.guard.snapshots import LEDGER_FILE, Snapshot, snapshots_in
from client_sdk.guard.standing import standing_of
from client_sdk.identity import DRAW_KEY_FILE, KEY_FILE, NEXT_KEY_FILE, Identity, Membership
from client_sdk.study.agreements import require_all_seen
from client_sdk.study.sites import find_site_versions
from study_protocol.files.private import exposure
from study_protocol.study.site_versions import SiteVersions
from study_protocol.wire.signing import TOKEN_LIFETIME_SECONDS, SigningError, decode_public_key, fingerprint
from study_protocol.wire.variables import PREFIX

Verdict = Literal["good", "note", "bad"]
# Larger snapshots are looked at by names and sizes alone.
_LARGEST_DIGESTED_BYTES = 1 << 28
_LEAST_DISK_BYTES, _NO_DISK_BYTES = 1 << 30, 1 << 26
_LOST = "studies read their records. Bring the list back (`wardround objection list`)"
_OF_STUDY = {
    "revoked": "this hospital no longer takes part. If that is a mistake, ask the study's lead for a new invitation",
    "bad-signature": "the coordinator does not know this hospital's key: restore identity.key from a backup, or ask "
    "the study's lead for a new invitation",
    "clock-skew": "the coordinator does not accept this machine's time: set its clock",
    "wrong-target": "the coordinator now has another public address: ask the study's lead for it, then give it "
    "once with `wardround join … --server`",
    "not-found": "the coordinator does not have this study: ask the study's lead whether it has moved or ended",
    "client-too-old": "this version is too old for the study: install the version that the study's lead names",
}


@dataclass(frozen=True)
class Finding:
    """verdict: good, note (fine, but worth knowing), bad (this must change)."""

    check: str
    verdict: Verdict
    text: str


def examine(
    settings: ClientSettings,
    *,
    server: str | None = None,
    home: Path | None = None,
    dataset: str = "records",
    transport: Callable[[Connection], Transport] = Transport,
    clock: Callable[[], float] = time.time,
) -> list[Finding]:
    """Run every check that can be made. One that fails does not hide the others."""
    directory = home or settings.client_home
    findings = [
        _directory(directory),
        _key(directory),
        *_key_files(directory),
        *_coordinator_keys(directory),
        _disk(directory),
        _policy(directory),
        _ledger(directory, dataset),
        *_snapshots(directory),
        *_decisions(directory),
        *_objections(directory),
    ]
    try:
        # One attempt: a person waits for the answer.
        connection = settings.connection(server or enrolled_server(directory), patience_seconds=0)
        require_safe_url(connection)
    except WardroundError as error:
        return [*findings, Finding("address", "bad", str(error))]
    findings += [Finding("address", "good", connection.url), _proxy(connection), _name(connection)]
    reached = _coordinator(connection, transport, clock)
    # Without an answer, what it knows of this hospital is no further finding.
    studies = _studies(directory, connection, transport) if reached[0].verdict == "good" else []
    return [*findings, *reached, *_certificate(connection, transport, reached[0]), *studies]


def enrolled_server(directory: Path) -> str | None:
    """Return the address of the coordinator of the first study, or None in a directory that has not enrolled."""
    try:
        return next((membership.url for membership in Identity.open(directory).memberships()), None)
    except ConfigurationError:
        return None


def _directory(directory: Path) -> Finding:
    if not directory.is_dir():
        return Finding("directory", "bad", f"{directory} is not there: enrol first, or set WARDROUND_CLIENT_HOME")
    if (others := exposure(directory)) is not None:
        return Finding("directory", "note", f"{directory} may be entered by others {others}")
    if not os.access(directory, os.W_OK):
        return Finding("directory", "bad", f"{directory} cannot be written to")
    return Finding("directory", "good", str(directory))


def _key(directory: Path) -> Finding:
    try:
        identity = Identity.open(directory)
        names = ", ".join(f"{m.study} as {m.client}" for m in identity.memberships()) or "no study yet"
    except ConfigurationError as error:
        return Finding(KEY_FILE, "bad", str(error))
    return Finding(KEY_FILE, "good", f"key {fingerprint(identity.key.public_key())[:16]}…, enrolled in {names}")


def _key_files(directory: Path) -> list[Finding]:
    """Return a finding for every other file of a key that other users may read, also an API key's."""
    # The last is of `feature_cache`, which loads torch.
    files: list[tuple[Path, Verdict]]
    files = [(directory / name, "bad") for name in (NEXT_KEY_FILE, DRAW_KEY_FILE, "features/key")]
    if api_key := os.environ.get(f"{PREFIX}API_KEY_FILE"):
        # Some systems that hand such a key out cannot set a mode.
        files.append((Path(api_key), "note"))
    return [
        Finding(path.name, verdict, f"{path} may be read by others {others}")
        for path, verdict in files
        if path.is_file() and (others := exposure(path)) is not None
    ]


def _coordinator_keys(directory: Path) -> list[Finding]:
    """Return the keys to read out to an auditor without a network, for `wardround ledger verify --coordinator-key`."""
    try:
        memberships = Identity.open(directory).memberships()
        marks = [(m.study, fingerprint(decode_public_key(m.coordinator_key))) for m in memberships]
    except (ConfigurationError, SigningError):
        return []
    return [Finding("coordinator's key", "good", f"{mark} in {study}, pinned at enrolment") for study, mark in marks]


def _disk(directory: Path) -> Finding:
    place = directory if directory.is_dir() else Path()
    free = shutil.disk_usage(place).free
    text = f"{free / 2**30:.1f} GiB free for updates and the ledger"
    if free < _NO_DISK_BYTES:
        return Finding("disk", "bad", f"{text}: free some space, or no round can be written down")
    return Finding("disk", "good" if free >= _LEAST_DISK_BYTES else "note", text)


def _policy(directory: Path) -> Finding:
    path = directory / POLICY_FILE
    if not path.exists():
        return Finding("site policy", "note", f"{path} is not there: the strict policy holds")
    try:
        policy = SitePolicy.read(path)
    except ConfigurationError as error:
        return Finding("site policy", "bad", str(error))
    if policy.unpinned_roster == "laboratory":
        return Finding("site policy", "note", f"{path}: masked rounds without a pinned roster, for laboratories only")
    limits = [f"{level} epsilon {section.epsilon:g}" for level, section in policy.limits.by_level().items()]
    if policy.individual is not None:
        limits.append(f"each patient epsilon {policy.individual.epsilon:g}")
    return Finding("site policy", "good", f"{path}: {', '.join(limits) or 'no limits of its own'}")


def _ledger(directory: Path, dataset: str) -> Finding:
    try:
        path = ledger_path(directory, dataset)
        if not path.exists():
            ledger_names = sorted(ledger.stem for ledger in path.parent.glob("*.db"))
            name = f", or name one that is here with --dataset: {', '.join(ledger_names)}" if ledger_names else ""
            return Finding("ledger", "note", f"no ledger of data set {dataset} yet: the first join makes it{name}")
        with HospitalLedger.open(path) as ledger:
            used = [f". Records of {m.at[:10]}: {m.patients} patients, {m.rows} rows" for m in ledger.records_marks()]
            return Finding("ledger", "good", f"{path}: {len(ledger.entries)} entries, chain good{''.join(used[-1:])}")
    except LedgerInUse:
        return Finding("ledger", "note", "a running hospital process holds it")
    except WardroundError as error:
        return Finding("ledger", "bad", str(error))


def _snapshots(directory: Path) -> list[Finding]:
    """Return one finding, where there are snapshots: whether their entries and files are as they were written."""
    try:
        snapshots = snapshots_in(directory)
        states = {snapshot.name: _checked_state(snapshot) for snapshot in snapshots}
    except (WardroundError, OSError) as error:
        return [Finding("snapshots", "bad", str(error))]
    wrong = [f"{name}: {state}" for name, state in states.items() if state != "there"]
    text = f"{len(snapshots)} in {LEDGER_FILE}, chain good{''.join(f'. {words}' for words in wrong)}"
    return [Finding("snapshots", "note" if wrong else "good", text)] if snapshots else []


def _checked_state(snapshot: Snapshot) -> str:
    """Return the state of a snapshot. Raises RecordsChanged: a small one is not as it was written."""
    state = snapshot.state()
    if state == "there" and sum(snapshot.sizes.values()) <= _LARGEST_DIGESTED_BYTES:
        snapshot.require_unchanged()
    return state


def _decisions(directory: Path) -> list[Finding]:
    """Return whether the chain of decisions is whole, and what people still have to agree to for the site policy."""
    try:
        decisions, policy = decisions_in(directory), SitePolicy.in_force(directory)
        require_all_seen(directory, decisions)
    except ConfigurationError:
        # Of the policy, which has a finding of its own.
        return []
    except WardroundError as error:
        return [Finding("decisions", "bad", str(error))]
    if not (directory / DECISIONS_FILE).exists():
        return []
    standing = standing_of(decisions, Subject.of_policy(policy), policy.approval)
    if standing.effective is None and standing.rule.people > 1:
        return [Finding("decisions", "note", f"the site policy: {standing.in_words} (wardround policy agree)")]
    return [Finding("decisions", "good", f"{len(decisions)} of people here, each chained to the one before")]


def _objections(directory: Path) -> list[Finding]:
    """Return one finding, where an objection was recorded: its chain, and whether the list still names all patients."""
    if not (directory / OBJECTIONS_LEDGER).exists():
        return []
    try:
        with ObjectionLedger.open(directory / OBJECTIONS_LEDGER, read_only=True) as ledger:
            # By keyed digests: no identifier of the list is held against the ledger, or shown.
            objections, listed = ledger.objections(), ledger.listed(SitePolicy.in_force(directory).exclusions)
    except WardroundError as error:
        # Also of the policy or its list: without them nobody knows that these patients are left out.
        return [Finding("objections", "bad", str(error))]
    lost = [str(each.number) for each in objections if each.digest not in listed]
    text = f"{len(objections)} in {OBJECTIONS_LEDGER}, chain good"
    if lost:
        return [
            Finding("objections", "bad", f"{text}. No list names the patients of {', '.join(lost)} any more: {_LOST}")
        ]
    return [Finding("objections", "good", f"{text}. The list names each of these patients")]


def _proxy(connection: Connection) -> Finding:
    proxy = proxy_of(connection)
    if proxy is None:
        return Finding("proxy", "good", "none is used")
    return Finding("proxy", "note", f"requests go through {proxy}")


def _name(connection: Connection) -> Finding:
    host = urlsplit(connection.url).hostname or ""
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        if proxy_of(connection) is not None:
            return Finding("name", "note", f"{host} is not known here, and the proxy may know it")
        return Finding("name", "note", f"{host} is not known here: check the address, and this machine's network")
    return Finding("name", "good", f"{host} is known")


def _coordinator(
    connection: Connection, transport: Callable[[Connection], Transport], clock: Callable[[], float]
) -> list[Finding]:
    """One request to /readyz shows the way, TLS and the clock."""
    try:
        with Client(connection, transport=transport(connection)) as client:
            before = clock()
            headers = client.health("readyz")
    except WardroundError as error:
        return [Finding("coordinator", "bad", _reason(error))]
    kind = "over TLS" if connection.url.startswith("https:") else "over plain HTTP"
    # The date was written somewhere between asking and hearing: the middle errs least.
    return [Finding("coordinator", "good", f"ready, {kind}"), _clock(headers.get("date"), (before + clock()) / 2)]


def _certificate(
    connection: Connection, transport: Callable[[Connection], Transport], reached: Finding
) -> list[Finding]:
    """Return who issued the certificate, one finding at most, so that a person recognises a proxy that opens TLS."""
    if reached.verdict == "bad" and NOT_TRUSTED_HERE not in reached.text:
        return []
    with closing(transport(connection)) as dialled:
        issuer = dialled.certificate_issuer()
    if issuer is None:
        return []
    text = f"issued by {issuer}. If that is your own firewall or proxy, it reads this traffic: ask IT for an exception"
    return [Finding("certificate", "good" if reached.verdict == "good" else "note", text)]


def _studies(directory: Path, connection: Connection, transport: Callable[[Connection], Transport]) -> list[Finding]:
    """Return one finding for each study of this coordinator: whether it still knows this hospital."""
    try:
        identity = Identity.open(directory)
        memberships = [each for each in identity.memberships() if each.url == connection.url]
    except ConfigurationError:
        return []
    return [each for membership in memberships for each in _study(identity, membership, connection, transport)]


def _study(
    identity: Identity, membership: Membership, connection: Connection, transport: Callable[[Connection], Transport]
) -> list[Finding]:
    check = f"study {membership.study}"
    signature = Signature(identity.key, membership.client, membership.study, membership.origin)
    try:
        with Client(connection, signature, transport=transport(connection)) as client:
            state = client.study(membership.study).state
            versions = find_site_versions(client, membership.study)
    except ApiError as error:
        if (advice := _OF_STUDY.get(error.code)) is not None:
            return [Finding(check, "bad", f"{advice} [{error.code}]")]
        return [Finding(check, "bad", _reason(error))]
    except WardroundError as error:
        return [Finding(check, "bad", _reason(error))]
    known = Finding(check, "good", f"{state}, this hospital is {membership.client} in it")
    return [known] if versions is None else [known, _versions(versions)]


def _versions(versions: SiteVersions) -> Finding:
    """Return the programs of all sites. Another hospital's program is worth knowing, and no fault of this one."""
    programs = ((site, f"{site.version} ({site.protocol})" if site.version else "") for site in versions.hospitals)
    sites = [" ".join(filter(None, (f"{site.client}:", program, site.remark))) for site, program in programs]
    text = (
        f"the study needs protocol {versions.needed_protocol}. coordinator: {versions.coordinator_version} "
        f"({versions.coordinator_protocol}), {', '.join(sites)}"
    )
    differs = any(site.remark for site in versions.hospitals)
    return Finding(f"versions in {versions.study}", "note" if differs else "good", text)


def _reason(error: WardroundError) -> str:
    """Return what went wrong and who does what next. No advice names this very command."""
    if isinstance(error, ServerFailure):
        detail = error.detail.rstrip(".")
        return f"it answers and is not ready. Nothing is to be done here: tell the study's lead ({detail})"
    return str(error).replace(DOCTOR_HINT, "")


def _clock(date: str | None, now: float) -> Finding:
    if date is None:
        return Finding("clock", "note", "the coordinator's answer has no date")
    skew = now - parsedate_to_datetime(date).timestamp()
    if abs(skew) > TOKEN_LIFETIME_SECONDS / 2:
        text = f"{abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} the coordinator: set this machine's clock"
        return Finding("clock", "bad", text)
    # +1, because the header has whole seconds.
    return Finding("clock", "good", f"within {abs(skew) + 1:.0f} s of the coordinator")
