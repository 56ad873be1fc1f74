"""Hospitals in a study without masks: assignment, ledger, model, update, as the SDK asks for them, on raw connections.

An answer is timed from its request's first byte, in the first attempt, to its own last byte. A long poll waits for news
and has no such time: an assignment counts from the moment when the first client had it.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from research.benchmarks.load.line import LoadAnswer, LoadConnection
from research.benchmarks.load.meter import Meter
from research.benchmarks.load.studies import Case, Member, plain_update
from study_protocol.study.messages import LedgerHead
from study_protocol.study.witness import sign_head, to_header

POLL_SECONDS = 25
ATTEMPTS = 8
# Of the coordinator or a proxy that says: later.
PASSING = frozenset({408, 425, 429, 502, 503, 504})


class Unexpected(Exception):
    """An answer that no hospital can go on with."""


@dataclass
class Load:
    """A study's hospitals at once.

    ledger_read     entries of the study's ledger that every hospital has read before, as one that joined earlier has
    spread_seconds  each "trains" for a time of its own between 0 and this; 0: everybody sends at once
    ports           of the coordinators; hospitals take them in turn
    """

    members: Sequence[Member]
    meter: Meter
    ports: Sequence[int]
    ledger_read: int = 0
    spread_seconds: float = 0.0
    troubles: Counter[str] = field(default_factory=Counter[str])
    requests: int = 0

    async def run(self) -> None:
        body = plain_update(self.members[0].case)
        clients = [self._client(index, member, body) for index, member in enumerate(self.members)]
        await asyncio.gather(*clients)

    async def _client(self, index: int, member: Member, body: bytes) -> None:
        chance = random.Random(index)
        port = self.ports[index % len(self.ports)]
        line = LoadConnection("127.0.0.1", port, troubles=self.troubles)
        hospital = PlainHospital(member, line, self.meter, self.ledger_read)
        while (assignment := await hospital.assignment()) is not None:
            with self.meter.round(assignment["round"]):
                await hospital.look_at_ledger(assignment["ledger"]["entries"])
                await hospital.fetch_model(assignment["model"]["version"])
                await asyncio.sleep(chance.uniform(0, self.spread_seconds))
                await hospital.send_update(assignment["round"], body)
        hospital.line.close()
        self.requests += hospital.line.requests


@dataclass
class PlainHospital:
    """One client on a connection of its own."""

    member: Member
    line: LoadConnection
    meter: Meter
    ledger_read: int = 0
    _witness: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def case(self) -> Case:
        return self.member.case

    async def assignment(self) -> dict | None:
        """The next assignment's body; None when the study has ended."""
        while True:
            answer = await self._send("GET", f"assignment?wait={POLL_SECONDS}")
            if answer.status == 200:
                assignment = json.loads(answer.body)["assignment"]
                self.meter.note_round(assignment["round"])
                return assignment
            if answer.status == 409 and answer.code == "study-finished":
                return None
            if answer.status != 204:
                raise Unexpected(f"assignment: {answer.status} {answer.code}")

    async def look_at_ledger(self, entries: int) -> None:
        """Every new entry up to the assignment's head, as a hospital reads them to check each round's charge."""
        while self.ledger_read < entries:
            answer = await self._answered("ledger", "GET", f"ledger?after={self.ledger_read}")
            page = json.loads(answer.body)
            self.ledger_read = max(entry["sequence"] for entry in page["entries"])
        # Signed once for each round: the head goes back with the update.
        head = LedgerHead(**page["head"]["head"])
        self._witness = to_header(sign_head(self.member.credentials.key, self.member.membership.client, head))

    async def fetch_model(self, version: int) -> None:
        await self._answered("model", "GET", f"models/{version}")

    async def send_update(self, round_number: int, body: bytes) -> None:
        target = f"rounds/{round_number}/updates/{self.member.membership.client}"
        await self._answered("update", "PUT", target, body, self._witness)

    async def _answered(
        self, what: str, method: str, below: str, body: bytes = b"", more: Mapping[str, str] | None = None
    ) -> LoadAnswer:
        begun = time.perf_counter()
        answer = await self._send(method, below, body, more)
        if answer.status not in (200, 201):
            raise Unexpected(f"{what}: {answer.status} {answer.code}")
        self.meter.answered(what, time.perf_counter() - begun)
        return answer

    async def _send(
        self, method: str, below: str, body: bytes = b"", more: Mapping[str, str] | None = None
    ) -> LoadAnswer:
        """What a hospital would be answered in the end: it repeats what passes by itself, signed anew, and so do we."""
        target = self.target(below)
        for attempt in range(ATTEMPTS):
            headers = {**self.headers(method, target, body), **(more or {})}
            if body:
                headers["Content-Type"] = "application/octet-stream"
            answer = await self.line.send(method, target, headers, body)
            if answer.status not in PASSING and answer.code != "clock-skew":
                return answer
            self.line.troubles[f"{answer.status} {answer.code}"] += 1
            await asyncio.sleep(min(30.0, 0.5 * 2**attempt))
        return answer

    def target(self, below: str) -> str:
        return f"/v1/studies/{self.case.name}/{below}"

    def headers(self, method: str, target: str, body: bytes = b"") -> dict[str, str]:
        """Signed for this request and now."""
        signed = self.member.credentials.authorization(
            method=method, target=target, body=body, now=time.time(), token_id=None
        )
        return {"Authorization": signed}
