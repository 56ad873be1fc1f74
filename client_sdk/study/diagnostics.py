"""The checks of `wardround doctor`, one finding each. No state is changed and no secret is shown."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from client_sdk.api.client import Client
from client_sdk.api.config import ClientSettings, Connection
from client_sdk.api.transport import Transport, require_safe_url
from client_sdk.errors import ConfigurationError, LedgerInUse, WardroundError
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from client_sdk.guard.policy import POLICY_FILE, SitePolicy
from client_sdk.identity import KEY_FILE, Identity
from study_protocol.wire.signing import TOKEN_LIFETIME_SECONDS, SigningError, decode_public_key, fingerprint

Verdict = Literal["good", "note", "bad"]
_LEAST_DISK_BYTES = 1 << 30


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
        *_coordinator_keys(directory),
        _disk(directory),
        _policy(directory),
        _ledger(directory, dataset),
    ]
    try:
        # One attempt: a person waits for the answer.
        connection = settings.connection(server or _enrolled_server(directory), patience_seconds=0)
        require_safe_url(connection)
    except WardroundError as error:
        return [*findings, Finding("address", "bad", str(error))]
    findings += [Finding("address", "good", connection.url), _proxy(connection), _name(connection)]
    return [*findings, *_coordinator(connection, transport, clock)]


def _enrolled_server(directory: Path) -> str | None:
    try:
        return next((membership.url for membership in Identity.open(directory).memberships()), None)
    except ConfigurationError:
        return None


def _directory(directory: Path) -> Finding:
    if not directory.is_dir():
        return Finding("directory", "bad", f"{directory} is not there: enrol first, or set WARDROUND_CLIENT_HOME")
    mode = stat.S_IMODE(directory.stat().st_mode)
    if mode & 0o077:
        return Finding("directory", "note", f"{directory} may be entered by others (mode {mode:03o}): chmod 700 it")
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
    verdict: Verdict = "good" if free >= _LEAST_DISK_BYTES else "note"
    return Finding("disk", verdict, f"{free / 2**30:.1f} GiB free for updates and the ledger")


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
            return Finding("ledger", "note", f"no ledger of data set {dataset} yet: the first round makes it")
        with HospitalLedger.open(path) as ledger:
            mark = ledger.records_mark
            used = "" if mark is None else f". Records of {mark.at[:10]}: {mark.patients} patients, {mark.rows} rows"
            return Finding("ledger", "good", f"{path}: {len(ledger.entries)} entries, chain good{used}")
    except LedgerInUse:
        return Finding("ledger", "note", "a running hospital process holds it")
    except WardroundError as error:
        return Finding("ledger", "bad", str(error))


def _proxy(connection: Connection) -> Finding:
    parts = urlsplit(connection.url)
    address = getproxies().get(parts.scheme)
    if address is None or proxy_bypass(parts.hostname or ""):
        return Finding("proxy", "good", "none is used")
    proxy = urlsplit(address)
    return Finding("proxy", "note", f"requests go through {proxy.hostname}:{proxy.port}")


def _name(connection: Connection) -> Finding:
    host = urlsplit(connection.url).hostname or ""
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        return Finding("name", "note", f"{host} is not known here, but a proxy may know it")
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


def _reason(error: WardroundError) -> str:
    """The innermost cause: a certificate that is not trusted hides behind two layers."""
    cause: BaseException = error
    while (inner := cause.__cause__ or cause.__context__) is not None:
        cause = inner
    detail = f": {type(cause).__name__}" if cause is not error else ""
    advice = ". Is the private CA in WARDROUND_CA_FILE?" if "SSL" in type(cause).__name__ else ""
    return f"{error}{detail}{advice}"


def _clock(date: str | None, now: float) -> Finding:
    if date is None:
        return Finding("clock", "note", "the coordinator's answer has no date")
    skew = now - parsedate_to_datetime(date).timestamp()
    if abs(skew) > TOKEN_LIFETIME_SECONDS / 2:
        text = f"{abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} the coordinator: set this machine's clock"
        return Finding("clock", "bad", text)
    # +1, because the header has whole seconds.
    return Finding("clock", "good", f"within {abs(skew) + 1:.0f} s of the coordinator")
