"""A coordinator with two faces, over real HTTP: one hospital is shown and signed something else than all others.

Everything that it shows the victim fits together, and carries the coordinator's own signature: settings, ledger,
roster, question and model. What it cannot do is sign for a hospital.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from accounting.budget.ledger import Entry, append, digest
from server.db.ledger_store import entries
from server.db.rows import find_study
from server.services import views
from server.services.coordinator import Coordinator
from study_protocol.secure_sum import transcript
from study_protocol.secure_sum.messages import SessionParameters
from study_protocol.study.any_settings import AnySettings
from study_protocol.study.plan_of import plan_of
from study_protocol.study.queries import QueryDocument
from study_protocol.wire.signing import (
    ASSIGNMENT,
    LEDGER_HEAD,
    claimed_identity,
    from_base64url,
    roster_fingerprint,
    to_base64url,
)
from tests.factories import live_coordinator
from tests.factories.live_coordinator import Live, live

Json = dict[str, Any]


@dataclass
class Face:
    """What the victim is shown otherwise; None: what everybody is.

    settings   of the study;  question  of the query's round;  model  bytes of the model
    stranger   base64url key that one member of the roster has instead of its own: (name, key)
    head       another past: a digest in the newest entry differs
    later      seconds by which its session's deadlines lie later
    longer     seconds by which its masked vectors are due later, and nothing else
    replayed   the session of the first round that it was shown: as it stands, or under its name and times alone (`own`)
    own        it gets session parameters of its own, which fit its face; else those that everybody gets
    """

    settings: AnySettings | None = None
    question: QueryDocument | None = None
    model: bytes | None = None
    stranger: tuple[str, str] | None = None
    head: bool = False
    later: int = 0
    longer: int = 0
    replayed: bool = False
    own: bool = False


@dataclass
class TwoFaced:
    """Stands between the socket and an honest coordinator whose key it has."""

    victim: str
    face: Face = field(default_factory=Face)
    coordinator: Coordinator | None = None
    app: Any = None
    # Entries that the victim was shown, by their numbers.
    _entries: dict[int, Entry] = field(default_factory=dict)
    _first: Json | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] != "GET" or self._caller(scope) != self.victim:
            await self.app(scope, receive, send)
            return
        started: list[Any] = []
        body = bytearray()

        async def collect(message: Any) -> None:
            if message["type"] == "http.response.start":
                started.append(message)
                return
            body.extend(message.get("body", b""))
            if message.get("more_body"):
                return
            (start,) = started
            changed = self._changed(scope["path"], bytes(body)) if start["status"] == 200 else bytes(body)
            headers = dict(start["headers"]) | {b"content-length": str(len(changed)).encode()}
            if b"etag" in headers:
                headers[b"etag"] = f'"{hashlib.sha256(changed).hexdigest()}"'.encode()
            await send(start | {"headers": list(headers.items())})
            await send({"type": "http.response.body", "body": changed})

        await self.app(scope, receive, collect)

    def _caller(self, scope: Any) -> str | None:
        given = dict(scope["headers"]).get(b"authorization", b"").decode().removeprefix("Bearer ")
        return claimed_identity(given)[0] if given.count(".") == 2 else None

    def _changed(self, path: str, body: bytes) -> bytes:
        parts = path.split("/")[3:]
        if parts[1:2] == ["models"]:
            return body if self.face.model is None else self.face.model
        change = {
            "": self._study, "assignment": self._assignment, "ledger": self._ledger, "roster": self._roster,
            "queries": self._queries,
        }.get("/".join(parts[1:2]))  # fmt: skip
        return body if change is None or not body else json.dumps(change(json.loads(body))).encode()

    def _study(self, shown: Json) -> Json:
        if self.face.settings is not None:
            shown |= {"settings": self.face.settings.as_json(), "settings_sha256": self.face.settings.digest()}
        return shown

    def _queries(self, shown: Json) -> Json:
        if self.face.question is not None:
            asked = {"document": self.face.question.model_dump(mode="json"), "sha256": self.face.question.digest()}
            for one in shown.get("queries", [shown]):
                one |= asked
        return shown

    def _roster(self, shown: Json) -> Json:
        if self.face.stranger is not None:
            name, key = self.face.stranger
            for member in shown["members"]:
                member["public_key"] = key if member["client"] == name else member["public_key"]
            active = [(m["client"], m["public_key"]) for m in shown["members"] if m["state"] == "active"]
            shown["fingerprint"] = roster_fingerprint(shown["study"], active)
        return shown

    # -- the ledger

    def _ledger(self, shown: Json) -> Json:
        wanted = [entry["sequence"] for entry in shown["entries"]]
        for number in range(1, shown["head"]["head"]["entries"] + 1):
            self._entry(shown["study"] if "study" in shown else shown["head"]["head"]["study"], number)
        shown["entries"] = [self._entries[number].to_dict() for number in wanted]
        shown["head"] = self._head(shown["head"]["head"])
        shown["witnesses"] = []
        return shown

    def _entry(self, study: str, number: int) -> Entry:
        if number not in self._entries:
            assert self.coordinator is not None
            (true,) = self.coordinator.database.read(
                "look", lambda tx: entries(tx, find_study(tx, study).id, number - 1, 1)
            )
            before = None if number == 1 else self._entry(study, number - 1)
            self._entries[number] = append(before, true.kind, true.round, self._body(true))
        return self._entries[number]

    def _body(self, entry: Entry) -> Json:
        body = dict(entry.body)
        if self.face.settings is not None:
            body["settings_sha256"] = self.face.settings.digest()
            if entry.kind == "opened":
                plan = plan_of(self.face.settings).to_dict()
                body |= {"settings": self.face.settings.as_json(), "plan": plan}
        if self.face.question is not None and entry.kind == "asked":
            body |= {"query": self.face.question.digest(), "cost": self.face.question.cost().to_dict()}
        if self.face.head and entry.kind in ("asked", "reserved"):
            body["state_sha256"] = digest("another past")
        return body

    def _head(self, head: Json) -> Json:
        entry = self._entry(head["study"], head["entries"])
        head = head | {"sha256": entry.sha256}
        assert self.coordinator is not None
        return {"head": head, "signature": self.coordinator.signer.sign(LEDGER_HEAD, head)}

    # -- the assignment and its session

    def _assignment(self, shown: Json) -> Json:
        body, face = shown["assignment"], self.face
        assert self.coordinator is not None
        body["ledger"] = self._head(body["ledger"])["head"]
        if face.settings is not None:
            body["settings_sha256"] = face.settings.digest()
        if face.question is not None and body["query"] is not None:
            body["query"]["document"] = face.question.model_dump(mode="json")
        about = body["query"]["model"] if body["query"] is not None else body["model"]
        if face.model is not None and about is not None:
            about |= self._info(about)
        if face.stranger is not None:
            body["roster_sha256"] = self._fingerprint(body)
        shown["signature"] = self.coordinator.signer.sign(ASSIGNMENT, body)
        if shown["session"] is None:
            return shown
        self._first = self._first or shown["session"]
        if face.own:
            shown["session"] = self._session(from_base64url(shown["session"]["parameters"]), body)
        elif face.replayed:
            shown["session"] = self._first
        return shown

    def _info(self, about: Json) -> Json:
        assert self.face.model is not None
        return {"sha256": hashlib.sha256(self.face.model).hexdigest(), "bytes": len(self.face.model)}

    def _fingerprint(self, body: Json) -> str:
        assert self.coordinator is not None
        shown = views.roster(self.coordinator, body["study"], body["round"])
        return self._roster(shown.model_dump(mode="json"))["fingerprint"]

    def _session(self, raw: bytes, body: Json) -> Json:
        said = json.loads(raw)
        charge = max(
            (entry for entry in self._entries.values() if entry.round == body["round"]), key=lambda one: -one.sequence
        )
        query, model = body["query"], body["model"]
        about = model if query is None else query["model"]
        asked = None if query is None else QueryDocument.model_validate(query["document"]).digest()
        fits = {
            "roster": body["roster_sha256"],
            "settings": body["settings_sha256"],
            "ledger_entries": charge.sequence,
            "ledger_sha256": charge.sha256,
            "query": asked,
            "model": None if about is None else about["sha256"],
        }
        if "query" not in said and asked is not None:
            # As an earlier version names it.
            fits["model"] = asked
        said |= {name: value for name, value in fits.items() if name in said}
        said["deadlines"] = {name: at + self.face.later for name, at in said["deadlines"].items()}
        said["expires"] += self.face.later
        if self.face.replayed and self._first is not None:
            before = json.loads(from_base64url(self._first["parameters"]))
            said |= {name: before[name] for name in ("session", "deadlines", "expires")}
        said["deadlines"]["masked"] += self.face.longer
        signed = SessionParameters.model_validate_json(json.dumps(said)).to_bytes()
        statement = transcript.parameters_statement(transcript.parameters_hash(signed))
        assert self.coordinator is not None
        signature = self.coordinator.signer.sign_statement(statement)
        return {"parameters": to_base64url(signed), "signature": to_base64url(signature)}


@contextmanager
def two_faced(
    home: Path, victim: str, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> Iterator[tuple[Live, TwoFaced]]:
    """A coordinator that takes in whatever hospitals say, and shows the victim the other face."""
    faced, served = TwoFaced(victim), live_coordinator.server_config

    def behind(app: Any, chosen: Any) -> Any:
        faced.app, faced.coordinator = app, app.state.context.coordinator
        return served(faced, chosen)

    monkeypatch.setattr(live_coordinator, "server_config", behind)
    # It does not refuse what its two faces make of each other, and passes on no signed head that would give it away.
    monkeypatch.setattr("server.domain.secure_sum._signed", lambda *_: True)
    monkeypatch.setattr("server.db.witness_store.keep_witness", lambda *_: False)
    with live(home, **options) as here:
        faced.coordinator = here.coordinator
        yield here, faced
