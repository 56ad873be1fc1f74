"""Authentication of callers, and the context that every handler can reach.

A client signs this very request, and a person has an API key or a session. A client's token covers method, address and
body. `study_protocol.study.roles` says who may call which operation. A caller is known, and may be refused, before a
byte of the body is read (`SignedRoute`). The body is compared with the signature before a handler runs. Handlers that
stream it compare the digest themselves, before anything is recorded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Coroutine, Iterator, Mapping, Set
from contextlib import nullcontext
from dataclasses import dataclass, replace
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Annotated, Any, cast

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fastapi import Depends, Header, Path, Query, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool

from server.api.bodies import body_of
from server.api.description import security_of
from server.api.lanes import Lanes
from server.api.lookups import Lookups
from server.api.problems import ApiProblem
from server.api.session_cookie import READING, cookie_of, require_own_page
from server.api.watcher import Watcher
from server.config import Settings
from server.domain.change_request import ChangeRequest
from server.domain.errors import Rejected
from server.domain.versions import require_spoken
from server.services.coordinator import Coordinator
from server.services.identities import MemberIdentity
from server.services.people import known
from server.services.people.audit import acting
from server.services.people.person import Person
from server.services.readiness import Readiness
from server.services.studies import enrolment, programs
from server.services.tampered_studies import UNREADABLE, refused, stop_differing
from server.telemetry import request_id
from study_protocol.study.audit_log import Actor
from study_protocol.study.roles import LOGGED_WITH_ITS_ROUND, OPERATIONS, ROLES, acting_role
from study_protocol.study.witness import WITNESS_HEADER, WITNESS_PATTERN
from study_protocol.versions import ProgramVersion
from study_protocol.wire.documents import UnclearDocument, load_json
from study_protocol.wire.signing import claimed_identity, verify_request_token
from study_protocol.wire.values import NAME_PATTERN

if TYPE_CHECKING:
    # Its library is an extra.
    from server.single_sign_on.provider import Provider


@dataclass(frozen=True)
class Context:
    """The objects that handlers of one process share.

    clock       seconds since the epoch, for the time window of request tokens
    identities  by (study, client): the key that signs for the client now
    keys        by API key or session: its person
    lanes       how much of this process one caller may use at once
    readiness   whether this process can do its work
    provider    where people log in. None: people have keys only
    """

    settings: Settings
    coordinator: Coordinator
    watcher: Watcher
    clock: Callable[[], float]
    identities: Lookups[tuple[str, str], MemberIdentity | None]
    keys: Lookups[str, Person]
    lanes: Lanes
    readiness: Readiness
    provider: Provider | None = None


def _context_of(request: Request) -> Context:
    return cast(Context, request.app.state.context)


# Dependencies that only look at values are `async`: the framework would give each a thread of its own.
async def _context(request: Request) -> Context:
    return cast(Context, request.scope.get(_ACTING)) or _context_of(request)


RequestContext = Annotated[Context, Depends(_context)]
StudyName = Annotated[str, Path(pattern=NAME_PATTERN, description="the study's name")]
WitnessName = Annotated[str, Path(pattern=NAME_PATTERN, description="an outside witness of the study's settings")]
ClientName = Annotated[str, Path(pattern=NAME_PATTERN, description="the hospital's name in the study")]
RoundNumber = Annotated[int, Path(alias="round", ge=1, le=2**31 - 1, description="the round, from 1")]
After = Annotated[int, Query(ge=0, le=2**53, description="everything above this number")]
PageSize = Annotated[int, Query(ge=1, le=500, description="most items of one answer")]
Wait = Annotated[float, Query(ge=0, le=55, allow_inf_nan=False, description="seconds to wait for news")]
Witness = Annotated[
    str | None,
    Header(alias=WITNESS_HEADER, pattern=WITNESS_PATTERN, description="the client's signature on the ledger it saw"),
]
# Limit of unsigned requests: an enrolment is the longest.
OPEN_BODY_BYTES = 4096
# In the request's scope: who asks, and the context whose writes have an entry in the audit log.
_CALLER, _ACTING = "wardround.caller", "wardround.acting"
_FOR_HOSPITALS = "this is for the clients of the study, signed with their own keys"
# Its private half was thrown away. Signatures of strangers are checked with it, so that they wait as long as others.
_UNKNOWN_KEY = Ed25519PrivateKey.generate().public_key()


@dataclass(frozen=True)
class ClientCaller:
    """A hospital whose signature on this request is good.

    public_key  what it was checked with
    protocol    the number that its study needs
    """

    study: str
    name: str
    body_sha256: str
    public_key: str
    protocol: int

    @property
    def lane(self) -> str:
        """Return the caller's name among callers."""
        return f"{self.study}/{self.name}"


Caller = ClientCaller | Person


async def signer(request: Request) -> Caller:
    """Return the caller, as `SignedRoute` found. `OPERATIONS` has let it in."""
    return cast(Caller, request.scope[_CALLER])


async def hospital(caller: Annotated[Caller, Depends(signer)]) -> ClientCaller:
    """Return the caller of an operation that only hospitals may call."""
    return cast(ClientCaller, caller)


async def person(caller: Annotated[Caller, Depends(signer)]) -> Person:
    """Return the caller of an operation that only people may call."""
    return cast(Person, caller)


async def _authenticate(request: Request, context: Context, *, once: bool, leaves: bool) -> Caller:
    """Return the signer of the request line. The body has not been looked at.

    once  the token may be used one time only
    leaves  clients that left may ask this, too

    Raises:
        ApiProblem: `bad-token`.
        SigningError: the signature or its claims are wrong. ClockSkew tells the server's time.
        Rejected: `revoked`, `replayed`, or `bad-token` of an API key.
    """
    cookie = cookie_of(request)
    if cookie is not None:
        require_own_page(request, cookie)
        return await context.keys.ask(cookie)
    token = _bearer(request)
    if token.startswith(known.PREFIXES):
        return await context.keys.ask(token)
    address = target(request, context.settings.origin)
    # Now: a token lives for a minute, and how long it waits for the database is not its sender's fault.
    return await _verify(context, token, request.method, address, context.clock(), once=once, leaves=leaves)


class _Unambiguous(Request):
    async def json(self) -> Any:
        # The framework reads the last of two fields of one name. The signer may have read the first.
        try:
            return load_json(await self.body())
        except UnclearDocument as error:
            raise ApiProblem("invalid-request", f"send JSON that reads in one way only: {error}") from error


class SignedRoute(APIRoute):
    """Knows who asks before a byte of the body is read: the framework reads it before any dependency runs."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle, marks = super().get_route_handler(), set(_dependencies(self.dependant))
        signed, methods = "anyone" not in OPERATIONS[self.name], self.methods or set()
        once, leaves = "POST" in methods or used_once in marks, leaving in marks
        # An awaited endpoint holds no thread while it waits.
        threaded, heavy = not iscoroutinefunction(self.endpoint), takes_long in marks
        changes = _is_logged(self.name, methods)
        if signed:
            self.openapi_extra = {"security": security_of(self.name)} | (self.openapi_extra or {})

        async def answered(request: Request) -> Response:
            if not signed:
                body_of(request.scope).limit = OPEN_BODY_BYTES
                return await handle(_Unambiguous(request.scope, request.receive))
            context = _context_of(request)
            caller = await _authenticate(request, context, once=once, leaves=leaves)
            _require_allowed(self.name, caller, request.path_params)
            request.scope[_CALLER] = caller
            read = _Unambiguous(request.scope, request.receive)
            async with context.lanes.thread(caller.lane, heavy=heavy, ready=read.body) if threaded else nullcontext():
                sha256 = None if streamed in marks else await _sha256_as_signed(read, caller)
                if changes:
                    request.scope[_ACTING] = _acting(context, self.name, caller, read, sha256)
                return await handle(read)

        async def handler(request: Request) -> Response:
            try:
                return await answered(request)
            except UNREADABLE as error:
                await run_in_threadpool(_require_as_written, request, error)
                raise

        return handler


def _require_allowed(operation: str, caller: Caller, path: Mapping[str, Any]) -> None:
    """Raises ApiProblem `forbidden`: the table of operations does not let this caller in."""
    callers, study = OPERATIONS[operation], path.get("study")
    if isinstance(caller, Person):
        _require_role(caller, operation, study)
    elif not callers & {"member", "itself"}:
        raise ApiProblem("forbidden", "this is for people: it needs an API key or a login")
    elif caller.study != study:
        raise ApiProblem("forbidden", "the client takes part in another study")
    elif "itself" in callers and caller.name != path.get("client"):
        raise ApiProblem("forbidden", "a client speaks for itself only")


def _require_role(person: Person, operation: str, study: str | None) -> None:
    if acting_role(person.grants, operation, study) is None:
        *others, last = [role for role in ROLES if role in OPERATIONS[operation]] or [""]
        if not last:
            raise ApiProblem("forbidden", _FOR_HOSPITALS)
        admitted_roles = f"{', '.join(others)} or {last}" if others else last
        of_study = "" if study is None else " of this study"
        own_roles = ", ".join(map(str, person.grants))
        raise ApiProblem("forbidden", f"this needs the role {admitted_roles}{of_study}, and you are {own_roles}")


def _is_logged(operation: str, methods: Set[str]) -> bool:
    """Return whether a request has an entry in the audit log."""
    return not methods <= READING and operation not in LOGGED_WITH_ITS_ROUND


async def _sha256_as_signed(request: Request, caller: Caller) -> str:
    """Return the digest of the body. Raises ApiProblem `digest-mismatch`. An API key signs no body."""
    sha256 = hashlib.sha256(await request.body()).hexdigest()
    if isinstance(caller, ClientCaller) and sha256 != caller.body_sha256:
        raise ApiProblem("digest-mismatch", "sign the bytes that are sent, and send the bytes that were signed")
    return sha256


def _acting(context: Context, operation: str, caller: Caller, request: Request, sha256: str | None) -> Context:
    """Return the context of a request that changes something: its writes have an entry in the audit log."""
    study = request.path_params.get("study")
    asker = caller if isinstance(caller, Person) else None
    actor = Actor(kind="hospital", name=caller.name) if asker is None else asker.acting_as(operation, study)
    session = None if asker is None or asker.kind == "key" else asker.id
    # Not of `request.url`, into which older frameworks put the caller's header Host.
    path = request.scope["path"]
    audited = ChangeRequest(actor, study, operation, path, request_id.get(), sha256, session=session)
    return replace(context, coordinator=acting(context.coordinator, audited))


def _require_as_written(request: Request, error: Exception) -> None:
    """Check whether an answer could not be made because the database was changed. Raises Rejected if so."""
    study = request.path_params.get("study")
    difference = None if study is None else stop_differing(_context_of(request).coordinator, study)[0]
    if difference is not None:
        raise refused(difference) from error


def _dependencies(dependant: Dependant) -> Iterator[Callable[..., Any] | None]:
    for needed in dependant.dependencies:
        yield needed.call
        yield from _dependencies(needed)


def target(request: Request, origin: str) -> str:
    """Return the address a client signs: the public origin, the path as it came, the query as it came."""
    # Not `path`, which is decoded: two addresses that read alike would share a signature.
    raw = request.scope.get("raw_path") or request.scope["path"].encode()
    query = request.scope["query_string"]
    return origin + raw.decode("latin-1") + (f"?{query.decode('latin-1')}" if query else "")


def _bearer(request: Request) -> str:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise ApiProblem("bad-token", "send `Authorization: Bearer …` with a signed token or an API key, or log in")
    return token.strip()


async def _verify(
    context: Context, token: str, method: str, url: str, now: float, *, once: bool, leaves: bool
) -> ClientCaller:
    # Not believed yet: it only says whose key the signature is checked with.
    name, study = claimed_identity(token)
    identity = await context.identities.ask((study, name))
    claims = verify_request_token(
        token,
        # Unknown names are answered as a wrong signature is, after the same work: strangers do not learn the members.
        _UNKNOWN_KEY if identity is None else identity.key,
        audience=context.settings.origin,
        method=method,
        url=url,
        now=now,
    )
    if identity is None:
        raise RuntimeError("a signature is good under an unknown key")
    if identity.state != "active" and not leaves:
        raise Rejected("revoked", "this client no longer takes part: ask the study's lead")
    program = ProgramVersion(claims.program, claims.protocol)
    await _note_program(context, (study, name), identity, program)
    if not leaves:
        require_spoken(identity.protocol, program)
    # A PUT may come again with the same effect, so its replay needs no memory. Routes whose replay matters say so.
    if once:
        if claims.token_id is None:
            raise ApiProblem("bad-token", "this request is signed with a jti, which is used once")
        # After the signature: strangers must not be able to fill the table.
        await run_in_threadpool(enrolment.use_token, context.coordinator, study, name, claims.token_id)
    return ClientCaller(study, name, claims.body_sha256, identity.public_key, identity.protocol)


async def _note_program(
    context: Context, member: tuple[str, str], identity: MemberIdentity, program: ProgramVersion
) -> None:
    """Keep which program a member runs, where it has changed. One that is refused as too old is known then, too."""
    # Compared in memory. The database is told of a change only.
    if program != identity.program and identity.state == "active":
        await run_in_threadpool(programs.note_program, context.coordinator, *member, program)


async def used_once() -> None:
    """Mark a PUT whose repetition may have another effect: its token is used once."""


async def takes_long() -> None:
    """Mark a request that computes for long: it takes turns with others of its kind."""


async def leaving() -> None:
    """Mark a request that a client may repeat after it left."""


async def streamed() -> None:
    """Mark a request whose handler reads the body itself, and compares its digest before anything is recorded."""


def require_study(person: Person, operation: str, study: str) -> None:
    """Check an operation whose body names the study. Raises ApiProblem `forbidden`."""
    _require_role(person, operation, study)


Reader = Annotated[Caller, Depends(signer)]
Member = Annotated[ClientCaller, Depends(hospital)]
Somebody = Annotated[Person, Depends(person)]
