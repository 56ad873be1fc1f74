"""A small coordinator behind httpx.MockTransport: signs, keeps a real ledger and a real budget, checks signatures.

It exists so that a test can make a coordinator misbehave in ways that the real one cannot. Its wire is the real one.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import httpx
import jwt
import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from accounting.budget.budget import Budget
from accounting.budget.ledger import Entry, append
from accounting.plan.report import CumulativeMoments, report_to_dict
from study_protocol.study.messages import (
    Assignment,
    AssignmentBody,
    BudgetLedger,
    BudgetStatement,
    Enrolment,
    EnrolmentRequest,
    LedgerEntry,
    LedgerHead,
    LedgerPage,
    ModelInfo,
    Refusal,
    Roster,
    RosterEntry,
    RoundList,
    SignedLedgerHead,
    SignedParameters,
    Study,
    UpdateReceipt,
    WitnessedHead,
)
from study_protocol.study.model_file import ModelMetadata
from study_protocol.study.plan_of import plan_of
from study_protocol.study.settings import StudySettings
from study_protocol.study.witness import WITNESS_HEADER, from_header, require_witnessed
from study_protocol.wire.signing import (
    ASSIGNMENT,
    ENROLMENT,
    LEDGER_HEAD,
    ClockSkew,
    decode_public_key,
    encode_public_key,
    fingerprint,
    roster_fingerprint,
    sign_document,
    verify_document,
    verify_request_token,
)
from study_protocol.wire.tensor_files import encode_model
from study_protocol.wire.tensors import TERMS, UPDATE, Array, decode, encode, prefixed, spec_of, terms_spec
from tests.factories.ledgers import standing
from tests.factories.wire_answers import problem, reply, round_view

ORIGIN = "https://study.example.org"
Json = dict[str, Any]


@dataclass
class Coordinator:
    """One study, any number of hospitals in one process; a round ends when everybody active has answered.

    skew: seconds that its clock is ahead;  meddle: may answer a request itself (status, headers, body) first.
    session: comes with the assignments of a masked study
    """

    settings: StudySettings
    initial: dict[str, Array]
    study: str = "sepsis"
    key: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)
    members: dict[str, str] = field(default_factory=dict)
    invited: dict[str, str] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)
    updates: dict[int, dict[str, bytes]] = field(default_factory=dict)
    refusals: dict[int, dict[str, Refusal]] = field(default_factory=dict)
    models: dict[int, bytes] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    witnesses: dict[str, WitnessedHead] = field(default_factory=dict)
    vouched: list[WitnessedHead] = field(default_factory=list)
    round: int = 0
    model_version: int = 0
    paused: bool = False
    skew: float = 0.0
    deadline_in: float = 3600.0
    meddle: Callable[[httpx.Request], httpx.Response | None] | None = None
    session: SignedParameters | None = None

    def __post_init__(self) -> None:
        self.budget = Budget.open(plan_of(self.settings))
        settings, plan = self.settings.as_json(), plan_of(self.settings).to_dict()
        self._append("opened", None, {"study": self.study, "settings": settings, "plan": plan})
        self.models[0] = encode(self.initial)

    # -- what an operator would do

    def token(self, client: str, secret: str = "s3cr_et") -> str:
        self.invited[f"{client}id"] = client
        return f"wri_{client}id_{secret}_{fingerprint(self.key.public_key())}"

    def transport(self) -> httpx.MockTransport:
        return httpx.MockTransport(self.answer)

    # -- the wire

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(f"{request.method} {request.url.path}")
        if self.meddle is not None:
            meddled = self.meddle(request)
            if meddled is not None:
                return meddled
        if request.url.path in ("/livez", "/readyz"):
            moment = datetime.fromtimestamp(self.now(), UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
            return httpx.Response(200, headers={"Date": moment})
        if request.url.path == "/v1/enrolments":
            return self._enrol(EnrolmentRequest.model_validate_json(request.content))
        client = self._caller(request)
        if isinstance(client, httpx.Response):
            return client
        if (vouched := request.headers.get(WITNESS_HEADER)) is not None:
            key = self.members[client]
            self.keep(from_header(vouched, study=self.study, client=client, public_key=key))
        path = request.url.path.removeprefix(f"/v1/studies/{self.study}")
        for pattern, handler in self._routes():
            found = re.fullmatch(pattern, path)
            if found:
                return handler(request, client, *found.groups())
        return problem(404, "not-found")

    def _routes(self) -> list[tuple[str, Callable[..., httpx.Response]]]:
        return [
            ("", self._study),
            ("/assignment", self._assignment),
            (r"/models/(\d+)", self._model),
            (r"/rounds/(\d+)/updates/([a-z0-9-]+)", self._update),
            (r"/rounds/(\d+)/refusals/([a-z0-9-]+)", self._refusal),
            ("/budget", self._budget),
            ("/ledger", self._ledger),
            (r"/witnesses/([a-z0-9-]+)", self._witness),
            ("/roster", self._roster),
            ("/rounds", self._rounds),
        ]

    def now(self) -> float:
        return time.time() + self.skew

    def _caller(self, request: httpx.Request) -> str | httpx.Response:
        token = request.headers["authorization"].removeprefix("Bearer ")
        name = next((n for n, k in self.members.items() if _signed_by(token, k)), None)
        if name is None:
            return problem(401, "bad-signature")
        url = ORIGIN + request.url.raw_path.decode()
        try:
            claims = verify_request_token(
                token,
                decode_public_key(self.members[name]),
                audience=ORIGIN,
                method=request.method,
                url=url,
                now=self.now(),
            )
        except ClockSkew as error:
            return problem(401, "clock-skew", server_time=error.server_time)
        assert claims.body_sha256 == hashlib.sha256(request.content).hexdigest()
        return claims.client

    def _enrol(self, request: EnrolmentRequest) -> httpx.Response:
        invitation = request.token.split("_")[1]
        client = self.invited[invitation]
        document = {"invitation": invitation, "key": request.public_key}
        verify_document(decode_public_key(request.public_key), ENROLMENT, document, request.proof)
        if self.members.get(client, request.public_key) != request.public_key:
            return problem(409, "invitation-used")
        if client not in self.members:
            self.members[client] = request.public_key
            self._append("roster", None, {"change": "enrolled"})
        return reply(Enrolment(study=self.study, client=client, coordinator_key=self._key(), origin=ORIGIN))

    def _study(self, request: httpx.Request, client: str) -> httpx.Response:
        return reply(
            Study(
                study=self.study,
                title="",
                state="finished" if self.budget.finished else "running",
                stop_reason=self.budget.finished,  # type: ignore[arg-type]
                settings=self.settings,
                settings_sha256=self.settings.digest(),
                model=None,
                clients=len(self.members),
                invited=len(self.members),
                state_since=datetime.now(UTC),
                pause_reason=None,
                under_way=None,
                rounds=self.round,
                coordinator_key=self._key(),
                created_at=datetime.now(UTC),
            )
        )

    def _assignment(self, request: httpx.Request, client: str) -> httpx.Response:
        if self.paused:
            return problem(409, "study-not-running")
        if self.budget.pending is None:
            self._open_round()
        if self.budget.finished:
            return problem(409, "study-finished", extra={"stop_reason": self.budget.finished})
        if client in self.updates[self.round] or client in self.refusals[self.round]:
            return httpx.Response(204)
        body = self.assignment_for(client)
        signature = sign_document(self.key, ASSIGNMENT, body.model_dump(mode="json"))
        return reply(Assignment(assignment=body, signature=signature, session=self.session))

    def assignment_for(self, client: str) -> AssignmentBody:
        model = self.models[self.model_version]
        return AssignmentBody(
            study=self.study,
            client=client,
            round=self.round,
            phase="train",
            deadline=datetime.fromtimestamp(self.now() + self.deadline_in, UTC),
            model=ModelInfo(version=self.model_version, sha256=hashlib.sha256(model).hexdigest(), bytes=len(model)),
            attempt=None if self.budget.plan.noise_schedule is None else self.budget.attempts,
            settings_sha256=self.settings.digest(),
            roster_sha256=roster_fingerprint(self.study, self.members.items()),
            ledger=self.head(),
        )

    def _model(self, request: httpx.Request, client: str, version: str) -> httpx.Response:
        body = self.models[int(version)]
        return httpx.Response(200, content=body, headers={"ETag": f'"{hashlib.sha256(body).hexdigest()}"'})

    def _update(self, request: httpx.Request, client: str, number: str, name: str) -> httpx.Response:
        body, round_ = request.content, int(number)
        digest = hashlib.sha256(body).hexdigest()
        before = self.updates.get(round_, {}).get(name)
        if before is not None and before != body:
            return problem(409, "different-update")
        # A repetition is answered as the first time, also after the round.
        if before is None and (round_ != self.round or self.budget.pending != round_):
            return problem(410, "round-closed")
        decode(body, self._update_spec())
        self.updates[round_][name] = body
        self._close_if_complete()
        status = 201 if before is None else 200
        receipt = UpdateReceipt(study=self.study, round=round_, client=name, sha256=digest, bytes=len(body))
        return reply(receipt, status)

    def _refusal(self, request: httpx.Request, client: str, number: str, name: str) -> httpx.Response:
        if self.budget.pending != int(number):
            return problem(410, "round-closed")
        refusal = Refusal.model_validate_json(request.content)
        self.refusals[int(number)][name] = refusal
        self._close_if_complete()
        return reply(refusal, 201)

    def _budget(self, request: httpx.Request, client: str) -> httpx.Response:
        statement = BudgetStatement(
            study=self.study,
            state="finished" if self.budget.finished else "running",
            round=self.round,
            max_steps=self.settings.privacy.max_steps,
            can_continue=self.budget.finished is None,
            pause_reason=None,
            stop_reason=self.budget.finished,  # type: ignore[arg-type]
            limits=[],
            percentiles=[],
            ledger=BudgetLedger(
                entries=self.head().entries,
                head=f"sha256:{self.head().sha256}",
                signature=self.signed(self.head()).signature,
            ),
        )
        return reply(statement)

    def _ledger(self, request: httpx.Request, client: str) -> httpx.Response:
        after = int(request.url.params["after"])
        # Two entries a page: hospitals must follow pages.
        entries = [LedgerEntry.model_validate(entry.to_dict()) for entry in self.entries[after : after + 2]]
        more = after + 2 < len(self.entries)
        witnesses = list(self.witnesses.values())
        more_after = str(after + 2) if more else None
        page = LedgerPage(entries=entries, head=self.signed(self.head()), witnesses=witnesses, next=more_after)
        return reply(page)

    def keep(self, witness: WitnessedHead) -> None:
        require_witnessed(witness)
        self.vouched.append(witness)
        self.witnesses[witness.client] = witness

    def _witness(self, request: httpx.Request, client: str, name: str) -> httpx.Response:
        signed = SignedLedgerHead.model_validate_json(request.content)
        key = self.members[client]
        self.keep(WitnessedHead(client=name, public_key=key, head=signed.head, signature=signed.signature))
        return reply(self.witnesses[name], 201)

    def _roster(self, request: httpx.Request, client: str) -> httpx.Response:
        members = [RosterEntry(client=n, public_key=k, state="active") for n, k in self.members.items()]
        fingerprint_ = roster_fingerprint(self.study, self.members.items())
        return reply(Roster(study=self.study, members=members, fingerprint=fingerprint_))

    def _rounds(self, request: httpx.Request, client: str) -> httpx.Response:
        seen = sorted(self.updates.items())
        return reply(RoundList(rounds=[round_view(n, client, client in bodies) for n, bodies in seen]))

    # -- rounds

    def _open_round(self) -> None:
        authorised = self.budget.authorise()
        if not authorised.is_allowed:
            if self.budget.finished is None:
                self.budget.finish(authorised.reason or "stopped")
                self._append("finished", None, {"reason": authorised.reason, "report": None})
            return
        self.round += 1
        self.budget.reserve(self.round)
        self._append("reserved", self.round, {})
        self.updates[self.round], self.refusals[self.round] = {}, {}

    def _close_if_complete(self) -> None:
        bodies, refusals = self.updates[self.round], self.refusals[self.round]
        if self.budget.pending is None or len({*bodies, *refusals}) < len(self.members):
            return
        report = self._report(list(bodies.values()))
        self.budget.settle(self.round, report)
        self._append("settled", self.round, {"report": report_to_dict(report)})
        if bodies:
            self._aggregate(list(bodies.values()))

    def _report(self, bodies: list[bytes]) -> CumulativeMoments | None:
        bayesian = self.settings.privacy.bayesian
        if bayesian is None or self.settings.privacy.scheme != "parallel" or not bodies:
            return None
        reports = [decode(body, self._update_spec()) for body in bodies]
        return CumulativeMoments.largest(
            [CumulativeMoments(float(r[TERMS + "filter"][0]), tuple(r[TERMS + "moments"].tolist())) for r in reports]
        )

    def _update_spec(self) -> dict[str, Any]:
        spec = prefixed(spec_of(self.initial), UPDATE)
        bayesian = self.settings.privacy.bayesian
        if bayesian is not None and self.settings.privacy.scheme == "parallel":
            spec |= terms_spec(len(bayesian.orders))
        return spec

    def _aggregate(self, bodies: list[bytes]) -> None:
        weights = decode(self.models[self.model_version], spec_of(self.initial))
        sign = -1.0 if self.settings.training.algorithm == "fedsgd" else 1.0
        step = sign * self.settings.training.optimiser.learning_rate / self.settings.privacy.expected_clients
        for body in bodies:
            update = decode(body, self._update_spec())
            weights = {name: (w + step * update[UPDATE + name]).astype(np.float32) for name, w in weights.items()}
        self.model_version = self.round
        settled = self.entries[-1]
        said = ModelMetadata.of(self.study, self.settings, self.round, (settled.sequence, settled.sha256))
        self.models[self.round] = encode_model(weights, said.header())

    # -- ledger

    def head(self) -> LedgerHead:
        return LedgerHead(study=self.study, entries=len(self.entries), sha256=self.entries[-1].sha256)

    def signed(self, head: LedgerHead) -> SignedLedgerHead:
        return SignedLedgerHead(head=head, signature=sign_document(self.key, LEDGER_HEAD, head.model_dump(mode="json")))

    def _append(self, kind: Any, round_: int | None, event: Json) -> None:
        roster = roster_fingerprint(self.study, self.members.items())
        standing_ = standing(self.budget, self.settings.digest(), roster, len(self.members))
        self.entries.append(append(self.entries[-1] if self.entries else None, kind, round_, {**event, **standing_}))

    def _key(self) -> str:
        return encode_public_key(self.key.public_key())


def _signed_by(token: str, key: str) -> bool:
    unchecked = dict.fromkeys(("verify_aud", "verify_exp", "verify_iat"), False)
    try:
        jwt.decode(token, decode_public_key(key), algorithms=["EdDSA"], options=unchecked)  # type: ignore[arg-type]
    except jwt.InvalidTokenError:
        return False
    return True
