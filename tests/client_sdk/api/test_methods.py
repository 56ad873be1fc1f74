"""Both clients have the same methods, from one list; over a real socket one blocks and the other is awaited."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator

import pytest

from client_sdk.api import calls
from client_sdk.api.client import ApiKey, AsyncClient, Client
from client_sdk.api.config import Connection
from client_sdk.api.methods import Method, Methods
from client_sdk.errors import NotFoundError
from study_protocol.study.messages import InvitationCreate
from tests.factories.live_coordinator import Live, live

NAMES = sorted(name for name, value in vars(Methods).items() if isinstance(value, Method))


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live(tmp_path_factory.mktemp("home")) as coordinator:
        coordinator.open_study("sepsis")
        yield coordinator


def test_neither_has_a_request_that_the_other_lacks() -> None:
    public = [{name for name in dir(kind) if not name.startswith("_")} for kind in (Client, AsyncClient)]
    assert public[0] == public[1]
    assert len(NAMES) > 15


@pytest.mark.parametrize("name", NAMES)
def test_both_methods_show_the_call_s_own_arguments_answer_and_words(name: str) -> None:
    blocking, awaiting = getattr(Client, name), getattr(AsyncClient, name)
    call = getattr(calls, name)
    shown = inspect.signature(blocking)
    assert shown == inspect.signature(awaiting)
    assert list(shown.parameters) == ["self", *inspect.signature(call).parameters]
    assert f"Call[{shown.return_annotation}]" == inspect.signature(call).return_annotation
    assert blocking.__doc__ == awaiting.__doc__ == call.__doc__
    assert (blocking.__qualname__, awaiting.__qualname__) == (f"Client.{name}", f"AsyncClient.{name}")
    assert not inspect.iscoroutinefunction(blocking)
    assert inspect.iscoroutinefunction(awaiting)


def test_the_awaited_methods_work_over_a_real_socket(here: Live) -> None:
    async def scenario() -> tuple[str, list[str], bytes, str]:
        async with AsyncClient(Connection(url=here.url), ApiKey(here.operator_key)) as client:
            study, listed = await asyncio.gather(client.study("sepsis"), client.studies())
            made = await client.invite("sepsis", InvitationCreate(client="mercy"))
            with pytest.raises(NotFoundError):
                await client.study("nowhere")
            return study.study, [one.study for one in listed.studies], await client.model("sepsis", 0), made.client

    study, listed, model, invited = asyncio.run(scenario())
    with Client(Connection(url=here.url), ApiKey(here.operator_key)) as client:
        assert client.study("sepsis").study == study == "sepsis"
        assert client.model("sepsis", 0) == model
    assert (listed, invited) == (["sepsis"], "mercy")


def test_a_subclass_keeps_its_own_name_and_its_parent_s_way() -> None:
    class Mine(AsyncClient):
        """Somebody's own."""

    assert Mine.study.__qualname__ == "Mine.study"
    assert inspect.iscoroutinefunction(Mine.study)
