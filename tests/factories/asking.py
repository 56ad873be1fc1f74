"""Studies with queries over real HTTP: hospitals in threads, an operator who asks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from client_sdk.api.client import ApiKey, Client, ServerClock
from client_sdk.api.config import Connection
from client_sdk.guard.policy import SitePolicy
from client_sdk.identity import Identity
from client_sdk.study.hospital import Hospital
from client_sdk.study.same_records import OnChangedRecords
from private_learning import tasks
from private_learning.records import Table
from private_learning.training.weights import weights_of
from study_protocol.cells import column_of
from study_protocol.study.any_settings import AnySettings
from study_protocol.study.queries import Query, QueryDocument
from study_protocol.study.settings import StudySettings
from study_protocol.wire.tensors import encode
from tests.factories.hospitals import plain_policy, records
from tests.factories.live_coordinator import Live

NAMES = ("alpha", "beta", "gamma", "delta", "epsilon")


def answering_policy(**entries: Any) -> SitePolicy:
    """Answers whatever its other rules let through, without a person."""
    return plain_policy(**{"statistics": {"queries": "allow", "by_hospital": "allow"}} | entries)


class Site(threading.Thread):
    """One hospital that joins; `error` is what ended it before the study did."""

    def __init__(
        self, here: Live, directory: Path, name: str, data: Table, policy: SitePolicy, study: str = "registry"
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._here, self.directory, self._data = here, directory, data
        self._policy, self._study = policy, study
        self.outcome: Any = None
        self.error: BaseException | None = None
        self._accepts: OnChangedRecords | None = None

    def again(self, data: Table | None = None) -> Site:
        """The same hospital, started anew. With other records it says that they are the right ones."""
        site = Site(self._here, self.directory, self.name, data or self._data, self._policy, self._study)
        site._accepts = None if data is None else lambda _: True
        return site

    def set_policy(self, **entries: Any) -> None:
        """Before it joins: the policy that it has from then on."""
        self._policy = answering_policy(**entries)

    def hospital(self) -> Hospital:
        clock = ServerClock(self._here.now)
        return Hospital(Identity.open(self.directory), connection=self.connection, clock=clock)

    def connection(self, _: str) -> Connection:
        return Connection(url=self._here.url, patience_seconds=30.0)

    def run(self) -> None:
        try:
            self.outcome = self.hospital().join(
                self._study, None, self._data, policy=self._policy, dataset="icu", accepts_records=self._accepts
            )
        # Whatever it is: who drives the study says so.
        except BaseException as error:  # noqa: BLE001
            self.error = error


def with_postcodes(seed: int, count: int = 40) -> Table:
    """The factory's records, and a column that an officer may deny."""
    made = records(count, seed)
    places = np.random.default_rng(seed).integers(1, 3, len(made)).astype(str)
    return replace(made, columns={**made.columns, "postcode": column_of(places)})


def enrolled(
    here: Live,
    home: Path,
    settings: AnySettings,
    *,
    names: Sequence[str] = NAMES,
    data: Callable[[int], Table] = lambda seed: records(seed=seed),
    policy: SitePolicy | None = None,
    study: str = "registry",
) -> list[Site]:
    """A started study and its hospitals, which have not joined yet."""
    created = here.operator("POST", "/v1/studies", json={"study": study, "settings": settings.as_json()})
    assert created.status_code == 201, created.text
    if isinstance(settings, StudySettings):
        model = tasks.load(settings.training.task, settings.training.task_parameters).model()
        stored = here.operator("PUT", f"/v1/studies/{study}/models/0", content=encode(weights_of(model)))
        assert stored.status_code == 201, stored.text
    sites = [
        Site(here, home / name, name, data(seed), policy or answering_policy(), study)
        for seed, name in enumerate(names)
    ]
    for site in sites:
        token = here.invite(study, site.name)
        Hospital.enrol(here.url, token, directory=site.directory, connection=site.connection)
    assert here.operator("POST", f"/v1/studies/{study}/start").status_code == 200
    return sites


def operator(here: Live) -> Client:
    """The study's lead, who asks."""
    connection = Connection(url=here.url, patience_seconds=30.0)
    return Client(connection, ApiKey(here.operator_key), clock=ServerClock(here.now))


def document(**question: Any) -> QueryDocument:
    """A question as a file would say it."""
    return QueryDocument.model_validate({"question": question})


def drive(here: Live, done: Callable[[], bool], *, seconds: float = 60.0, sites: Iterable[Site] = ()) -> None:
    """Let the worker work until `done`; a hospital that ends before says why."""
    end = time.monotonic() + seconds
    while not done():
        broken = [(site.name, site.error) for site in sites if site.error is not None]
        assert not broken, broken
        assert time.monotonic() < end, "the study does not come so far"
        here.work()
        time.sleep(0.02)


def answered(here: Live, sites: Sequence[Site], asked: QueryDocument, study: str = "registry") -> Query:
    """Ask, and wait for the answer."""
    with operator(here) as lead:
        number = lead.ask_query(study, asked).number
        drive(here, lambda: lead.query(study, number).state in ("answered", "failed"), sites=sites)
        return lead.query(study, number)
