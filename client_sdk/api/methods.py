"""The named methods of both clients, written once: each sends one call of `client_sdk.api.calls`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from types import FunctionType, MethodType
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, cast, overload

from client_sdk.api import calls
from client_sdk.api.transport import Call

T = TypeVar("T")
P = ParamSpec("P")


class Blocking(Protocol):
    """A client whose `send` returns the answer."""

    def send(self, call: Call[T]) -> T: ...


class Awaiting(Protocol):
    """A client whose `send` is awaited for the answer."""

    def send(self, call: Call[T]) -> Coroutine[Any, Any, T]: ...


class Method(Generic[P, T]):
    """One request as a method: of a blocking client it returns the answer, of the other one it is awaited for it."""

    def __init__(self, call: Callable[P, Call[T]]) -> None:
        self._call = call
        self._functions: dict[type, FunctionType] = {}

    @overload
    def __get__(self, client: None, owner: type) -> FunctionType: ...
    @overload
    def __get__(self, client: Blocking, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: Awaiting, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, client: object, owner: type) -> object:
        function = self._functions.get(owner)
        if function is None:
            function = self._functions[owner] = self._function(owner)
        return function if client is None else MethodType(function, client)

    def _function(self, owner: type) -> FunctionType:
        call = self._call

        # The same for both, were it not that tools ask a function whether it is one to await.
        if inspect.iscoroutinefunction(getattr(owner, "send", None)):

            async def awaiting(client: Awaiting, /, *arguments: P.args, **keywords: P.kwargs) -> T:
                return await client.send(call(*arguments, **keywords))

            return _with_signature(awaiting, call, owner)

        def blocking(client: Blocking, /, *arguments: P.args, **keywords: P.kwargs) -> T:
            return client.send(call(*arguments, **keywords))

        return _with_signature(blocking, call, owner)


def _with_signature(send: Callable[..., Any], call: Callable[..., Any], owner: type) -> FunctionType:
    """As `help` and completion show it: bound to a client, and answering what the call's answer holds."""
    functools.update_wrapper(send, call)
    function = cast("FunctionType", send)
    call_signature = inspect.signature(call)
    me = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    answer = str(call_signature.return_annotation).removeprefix("Call[").removesuffix("]")
    signature = call_signature.replace(parameters=[me, *call_signature.parameters.values()], return_annotation=answer)
    vars(function)["__signature__"] = signature
    function.__qualname__, function.__module__ = f"{owner.__name__}.{call.__name__}", owner.__module__
    return function


class Methods:
    """The requests that both clients have as methods. Any other call goes through their `send`."""

    create_study = Method(calls.create_study)
    studies = Method(calls.studies)
    study = Method(calls.study)
    move_study = Method(calls.move_study)
    delete_study = Method(calls.delete_study)
    put_initial_model = Method(calls.put_initial_model)
    invite = Method(calls.invite)
    enrol = Method(calls.enrol)
    roster = Method(calls.roster)
    put_lacking_columns = Method(calls.put_lacking_columns)
    lacking_columns = Method(calls.lacking_columns)
    site_versions = Method(calls.site_versions)
    rotate_key = Method(calls.rotate_key)
    leave = Method(calls.leave)
    assignment = Method(calls.assignment)
    model = Method(calls.model)
    put_update = Method(calls.put_update)
    put_refusal = Method(calls.put_refusal)
    put_metrics = Method(calls.put_metrics)
    put_witness = Method(calls.put_witness)
    put_outside_witness = Method(calls.put_outside_witness)
    budget = Method(calls.budget)
    certificate = Method(calls.certificate)
    ledger = Method(calls.ledger)
    rounds = Method(calls.rounds)
    ask_query = Method(calls.ask_query)
    forecast_query = Method(calls.forecast_query)
    queries = Method(calls.queries)
    query = Method(calls.query)
    put_consent = Method(calls.put_consent)
    audit_log = Method(calls.audit_log)
    begin_login = Method(calls.begin_login)
    poll_login = Method(calls.poll_login)
    log_out = Method(calls.log_out)
    create_api_key = Method(calls.create_api_key)
    api_keys = Method(calls.api_keys)
    revoke_api_key = Method(calls.revoke_api_key)
    health = Method(calls.health)
