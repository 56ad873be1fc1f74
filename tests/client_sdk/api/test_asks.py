"""`client.ask` over real HTTP: hospitals in threads, answers as data frames, every no with its reason."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from client_sdk.api.answered import Answered
from client_sdk.api.asks import AsyncQueryMixin, QueryMixin
from client_sdk.api.client import ApiKey, AsyncClient, Client
from client_sdk.api.config import Connection
from client_sdk.api.transport import Call
from client_sdk.errors import AnswerNotSigned, ConfigurationError, ConflictError, QueryFailed, QueryNotAnswered
from study_protocol.study.queries import Query
from study_protocol.wire.signing import decode_public_key, fingerprint
from tests.factories.asking import Site, answering_policy, document, enrolled, with_postcodes
from tests.factories.live_coordinator import Live, live
from tests.factories.settings import statistics_settings
from tests.factories.signed_answers import PUBLIC, answered, shown
from tests.factories.signed_answers import document as hand_made

COUNT = {"kind": "count", "noise_multiplier": 5.0}
AGES = {
    "kind": "table",
    "title": "Patients by age",
    "noise_multiplier": 6.0,
    "variables": [{"column": "age", "edges": [40, 60]}],
}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """`registry` answers, `silent` has hospitals that never join; the worker works all the time."""
    home = tmp_path_factory.mktemp("home")
    with live(home / "coordinator", long_poll_seconds=0.2) as running:
        policy = answering_policy(statistics={"queries": "allow", "denied_columns": ["postcode"]})
        names = ("alpha", "beta")
        sites = enrolled(
            running, home, statistics_settings(masked=False), names=names, policy=policy, data=with_postcodes
        )
        for study in ("silent", "stopped"):
            enrolled(running, home / study, statistics_settings(masked=False), names=names, study=study)
        ended = threading.Event()
        worker = threading.Thread(target=_work, args=(running, ended))
        worker.start()
        for site in sites:
            site.start()
        yield running
        running.operator("POST", "/v1/studies/registry/stop")
        _joined(sites)
        ended.set()
        worker.join()


def _work(here: Live, ended: threading.Event) -> None:
    while not ended.wait(0.05):
        here.work()


def _joined(sites: list[Site]) -> None:
    for site in sites:
        site.join(timeout=30)
        assert site.error is None


@pytest.fixture
def lead(here: Live) -> Iterator[Client]:
    with Client(Connection(url=here.url), ApiKey(here.operator_key)) as client:
        yield client


@pytest.mark.slow
def test_a_dictionary_is_answered_as_a_data_frame(lead: Client) -> None:
    answer = lead.ask("registry", AGES, timeout=60)
    frame = answer.frame()
    assert list(frame.columns) == ["age", "estimate", "raw", "dp_error", "sampling_error", "low", "high"]
    # Two hospitals of 40 patients, each with the whole noise in the clear.
    assert answer.noise.present == pytest.approx(6.0 * 2**0.5, rel=1e-6)
    assert abs(float(frame["raw"].sum()) - 80) < 6 * answer.noise.present * 2
    assert frame["dp_error"].dtype == float
    assert frame.attrs["warning"] == answer.warning
    assert list(answer.frame("patients").columns) == list(answer.table("patients").columns)
    assert answer.notes
    assert "<table" in answer._repr_html_()
    assert "registry" in repr(answer)
    with pytest.raises(KeyError, match="table, shares, patients"):
        answer.frame("nothing")


def test_the_same_question_in_any_form_is_the_same_answer_and_costs_nothing(lead: Client, tmp_path: Path) -> None:
    first = lead.ask("registry", COUNT, timeout=60)
    spent = lead.budget("registry").limits[0].spent
    toml, as_json = tmp_path / "count.toml", tmp_path / "count.json"
    toml.write_text('kind = "count"\nnoise_multiplier = 5.0\n')
    as_json.write_text(json.dumps(document(**COUNT).model_dump(mode="json")))
    asked = document(**COUNT)
    for form in (toml, str(toml), as_json, asked, asked.question, COUNT):
        assert lead.ask("registry", form).published == first.published
    assert lead.budget("registry").limits[0].spent == spent


@pytest.mark.slow
def test_an_awaited_client_asks_as_well(here: Live, lead: Client) -> None:
    async def scenario() -> tuple[Answered, list[Query]]:
        seen: list[Query] = []
        async with AsyncClient(Connection(url=here.url), ApiKey(here.operator_key)) as client:
            return await client.ask("registry", COUNT | {"title": "Anew"}, timeout=60, on_state=seen.append), seen

    answer, seen = asyncio.run(scenario())
    assert {one.state for one in seen} <= {"waiting", "asked"}
    assert seen
    assert answer.published == lead.ask("registry", COUNT | {"title": "Anew"}).published


def test_a_known_key_or_its_fingerprint_is_what_the_answer_is_verified_with(here: Live, lead: Client) -> None:
    key = lead.study("registry").coordinator_key
    mark = fingerprint(decode_public_key(key))
    assert not lead.ask("registry", COUNT, timeout=60).pinned
    for known in (key, mark, " ".join([mark[:32].upper(), mark[32:]])):
        with Client(Connection(url=here.url), ApiKey(here.operator_key), coordinator_key=known) as client:
            assert client.ask("registry", COUNT).pinned
    with (
        Client(Connection(url=here.url), ApiKey(here.operator_key), coordinator_key="0" * 64) as client,
        pytest.raises(AnswerNotSigned, match="another key"),
    ):
        client.ask("registry", COUNT)


def test_who_does_not_wait_gets_the_query_and_its_answer_later(lead: Client) -> None:
    waiting = lead.ask("silent", COUNT, wait=False)
    assert isinstance(waiting, Query)
    assert (waiting.state, waiting.number) == ("waiting", 1)
    with pytest.raises(QueryNotAnswered, match="0 of at least 2 hospitals say yes") as found:
        lead.ask("silent", COUNT, timeout=0.3)
    assert found.value.query.number == 1


def test_a_study_that_ends_lets_nobody_wait_for_ever(here: Live, lead: Client) -> None:
    def stop(query: Query) -> None:
        here.operator("POST", "/v1/studies/stopped/stop")

    with pytest.raises(QueryFailed, match="The study ended") as found:
        lead.ask("stopped", COUNT, on_state=stop, timeout=60)
    assert found.value.code == "study-finished"


def test_what_hospitals_refuse_fails_with_the_reason(lead: Client) -> None:
    denied: dict[str, Any] = {
        "kind": "table",
        "noise_multiplier": 6.0,
        "variables": [{"column": "postcode", "categories": ["1", "2"]}],
    }
    with pytest.raises(QueryFailed, match="Too many hospitals refused") as found:
        lead.ask("registry", denied, timeout=60)
    assert found.value.code == "refused-by-hospitals"


def test_what_could_overspend_is_refused_with_the_noise_that_would_fit(lead: Client) -> None:
    with pytest.raises(ConflictError, match="would fit") as found:
        lead.ask("registry", COUNT | {"noise_multiplier": 0.01})
    assert found.value.code == "query-overspends"


@pytest.mark.parametrize(
    "wrong", [{"kind": "count"}, {"kind": "nothing", "noise_multiplier": 3.0}, {"kind": {1, 2}}, {}]
)
def test_what_is_no_question_is_refused_before_anybody_is_asked(lead: Client, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="not a question"):
        lead.ask("registry", wrong)


class Scripted(QueryMixin):
    """A client that blocks, whose coordinator answers from a list and whose pauses are counted."""

    coordinator_key = PUBLIC

    def __init__(self, *answers: Any) -> None:
        self.answers, self.slept = list(answers), list[float]()

    def send(self, call: Call[Any]) -> Any:
        return self.answers.pop(0)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


class ScriptedAsync(AsyncQueryMixin):
    """The same, awaited."""

    coordinator_key = PUBLIC

    def __init__(self, *answers: Any) -> None:
        self.client = Scripted(*answers)

    async def send(self, call: Call[Any]) -> Any:
        return self.client.send(call)

    async def sleep(self, seconds: float) -> None:
        self.client.sleep(seconds)


def test_blocking_and_awaited_clients_take_the_same_steps() -> None:
    asked = hand_made("count", noise_multiplier=5.0)
    script = (shown(asked), answered(asked), SimpleNamespace(coordinator_key=PUBLIC))
    blocking, awaited = Scripted(*script), ScriptedAsync(*script)
    found = blocking.ask("registry", COUNT)  # type: ignore[misc]
    assert found == asyncio.run(awaited.ask("registry", COUNT))  # type: ignore[misc]
    assert found.pinned
    assert blocking.slept == awaited.client.slept == [0.25]
    assert Scripted(shown(asked)).ask("registry", COUNT, wait=False) == shown(asked)  # type: ignore[misc]
