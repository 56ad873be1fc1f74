"""The group `key`: API keys of people, made on the coordinator's own machine or, with a key, over its API."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from study_protocol.files.private import open_private
from study_protocol.study.people import DEFAULT_DAYS, MAX_DAYS, ApiKeyCreate, ApiKeyList, ApiKeyView
from study_protocol.study.roles import ROLE_TEXTS, Role
from wardround.cli.coordinator.coordinator import coordinator_of, fail, read_settings
from wardround.cli.shared.shared import AsJson, KeyFile, a_name_or_none, print_json, table

if TYPE_CHECKING:
    from server.services.coordinator import Coordinator

_ROLES = ". ".join(f"{role}: {text}" for role, text in ROLE_TEXTS.items())
RoleOption = Annotated[Role, typer.Option(help=_ROLES)]
PersonName = Annotated[str, typer.Option("--name", help="the person who gets the key. Audit log and ledger show it")]
OfStudy = Annotated[
    str | None, typer.Option("--study", help="only for this study. Default: all studies", callback=a_name_or_none)
]
Days = Annotated[int, typer.Option(min=1, max=MAX_DAYS, help="days until the key expires")]
Out = Annotated[Path | None, typer.Option(help="write the key to this new file (mode 0600), not to the screen")]
Server = Annotated[
    str | None,
    typer.Option(help="ask the coordinator at this address, with your own key. Default: use its database"),
]
KeyId = Annotated[str, typer.Argument(help="the middle part of wrk_<id>_<secret>")]


class _KeyPlace(Protocol):
    """The place where keys are made: over the API, or in the database."""

    def create(self, request: ApiKeyCreate) -> ApiKeyView: ...

    def list_all(self) -> ApiKeyList: ...

    def revoke(self, key_id: str) -> ApiKeyView: ...


class _ByApi:
    def __init__(self, server: str, key_file: Path | None) -> None:
        from wardround.cli.shared.shared import operator

        self.client = operator(server, key_file)

    def create(self, request: ApiKeyCreate) -> ApiKeyView:
        return self.client.create_api_key(request)

    def list_all(self) -> ApiKeyList:
        return self.client.api_keys()

    def revoke(self, key_id: str) -> ApiKeyView:
        return self.client.revoke_api_key(key_id)


class _InDatabase:
    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    def _acting(self, command: str, key_id: str = "") -> Coordinator:
        from client_sdk.guard.people import SystemAccount
        from server.domain.change_request import ChangeRequest
        from server.services.people.audit import acting
        from study_protocol.study.audit_log import Actor

        actor, address = Actor(kind="machine", name=str(SystemAccount.current())), f"/v1/api-keys/{key_id}".rstrip("/")
        return acting(self._coordinator, ChangeRequest(actor, None, command, address))

    def create(self, request: ApiKeyCreate) -> ApiKeyView:
        from server.services.people.keys import create_key

        return create_key(self._acting("create_key"), request)

    def list_all(self) -> ApiKeyList:
        from server.services.people.keys import list_keys

        return list_keys(self._coordinator)

    def revoke(self, key_id: str) -> ApiKeyView:
        from server.services.people.keys import revoke_key

        return revoke_key(self._acting("revoke_key", key_id), key_id)


@contextmanager
def _keys(server: str | None, key_file: Path | None) -> Generator[_KeyPlace]:
    from wardround.cli.shared.shared import plain_errors

    if server is not None:
        with plain_errors():
            by_api = _ByApi(server, key_file)
            with by_api.client:
                yield by_api
    elif key_file is not None:
        fail("--key-file is your own key for the coordinator at --server. Name that address as well")
    else:
        with coordinator_of(read_settings()) as coordinator:
            yield _InDatabase(coordinator)


def key_create(
    name: PersonName,
    role: RoleOption = "administrator",
    study: OfStudy = None,
    days: Days = DEFAULT_DAYS,
    out: Out = None,
    server: Server = None,
    key_file: KeyFile = None,
) -> None:
    """Create an API key for a person and print it. It is shown only once.

    Without --server it is made in the database of this machine's coordinator: so the first key is made. With --server
    an administrator or a lead makes keys for others over the API.
    """
    request = _request(role, study, name, days)
    with _keys(server, key_file) as keys:
        _hand_over(lambda: keys.create(request), out)


def key_list(server: Server = None, key_file: KeyFile = None, as_json: AsJson = False) -> None:
    """List API keys with person, role, study and expiry, without their secrets."""
    with _keys(server, key_file) as keys:
        listed = keys.list_all()
    if as_json:
        print_json(listed.model_dump(mode="json", exclude={"keys": {"__all__": {"key"}}}))
        return
    columns = ["id", "person", "role", "study", "made", "expires", "state"]
    table("API keys", columns, [_row(key) for key in listed.keys])


def key_rotate(
    id: KeyId, days: Days = DEFAULT_DAYS, out: Out = None, server: Server = None, key_file: KeyFile = None
) -> None:
    """Create a new key for the person, role and study of an old one. The old key works until you revoke it."""
    with _keys(server, key_file) as keys:
        # A revoked key has no successor: a rotation must not undo a revocation.
        old = next((key for key in keys.list_all().keys if key.id == id and key.revoked_at is None), None)
        if old is None:
            fail(f"no valid key has the id {id}. `wardround key list` shows all keys")
        if not old.name:
            fail(f"the key {id} names no person. Create a new one with --name, and revoke this one")
        successor = _request(old.role, old.study, old.name, days)
        _hand_over(lambda: keys.create(successor), out)


def key_revoke(id: KeyId, server: Server = None, key_file: KeyFile = None) -> None:
    """Revoke an API key. It stops working at once."""
    with _keys(server, key_file) as keys:
        print(f"{keys.revoke(id).id} is revoked")


def _request(role: Role, study: str | None, name: str, days: int) -> ApiKeyCreate:
    from pydantic import ValidationError

    from study_protocol.wire.wrong_entries import as_words

    try:
        return ApiKeyCreate(role=role, study=study, name=name.strip(), expires_in_days=days)
    except ValidationError as error:
        fault = error.errors(include_input=False)[0]
        field = ".".join(map(str, fault["loc"])) or "key"
        fail(f"{field}: {as_words(fault['msg'])}")


def _row(key: ApiKeyView) -> list[str]:
    expires = "never" if key.expires_at is None else f"{key.expires_at:%Y-%m-%d}"
    created, name = f"{key.created_at:%Y-%m-%d}", key.name or "no name"
    return [key.id, name, key.role, key.study or "all", created, expires, _state(key)]


def _state(key: ApiKeyView) -> str:
    if key.revoked_at is not None:
        return f"revoked {key.revoked_at:%Y-%m-%d %H:%M}"
    return "expired" if key.expires_at is not None and key.expires_at <= datetime.now(UTC) else "valid"


def _hand_over(make: Callable[[], ApiKeyView], file: Path | None) -> None:
    """Create the key and hand it out. The file is created first, so that no key is lost."""
    if file is None:
        print(make().key or "")
        return
    try:
        # O_EXCL: no existing file is overwritten.
        handle = open_private(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    except FileExistsError:
        fail(f"{file} exists. Name a new file. No key was created")
    except OSError as error:
        fail(f"{file} cannot be created: {error.strerror}. No key was created")
    try:
        with os.fdopen(handle, "w") as opened:
            key = make()
            opened.write(f"{key.key or ''}\n")
    except BaseException:
        # Without a key it would only be in the way of the next attempt.
        if file.stat().st_size == 0:
            file.unlink()
        raise
    print(f"{key.id} is in {file}")
