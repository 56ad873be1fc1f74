"""What a client is asked to do now."""

from __future__ import annotations

from client_sdk.protocol.study.messages import Assignment, AssignmentBody
from client_sdk.protocol.wire.signing import ASSIGNMENT
from server.db.repositories import find_client, find_session, find_study, open_round
from server.db.session import Transaction
from server.db.session_store import is_awaited, members_at_opening
from server.db.tables import BudgetRow, ModelRow, ParticipantRow
from server.domain.errors import Rejected
from server.services.coordinator import Coordinator
from server.services.views import at, ledger_head, model_info


def find(coordinator: Coordinator, study: str, client: str) -> Assignment | None:
    """The signed assignment if the client is sampled and has not answered yet, else None.

    Where sums are made under masks, an answer is whole when the client has opened its shares: one that was killed
    after its vectors had arrived is asked again, or the session could wait for it in vain. Its roster is the one of
    the round's opening, whoever has come or gone since: masking keys are checked against it.

    Raises:
        Rejected: `unknown-study`, `unknown-client`, `revoked` (also withdrawn), `study-finished` (extra stop_reason).
    """
    body = coordinator.database.read("find-assignment", lambda tx: _body(tx, study, client))
    if body is None:
        return None
    return Assignment(assignment=body, signature=coordinator.signer.sign(ASSIGNMENT, body.model_dump(mode="json")))


def _body(tx: Transaction, study: str, client: str) -> AssignmentBody | None:
    row = find_study(tx, study)
    if row.state == "finished":
        raise Rejected("study-finished", "the study is finished; no round will follow", stop_reason=row.stop_reason)
    member = find_client(tx, row.id, client)
    if member is None:
        raise Rejected("unknown-client", "the study has no client of this name")
    if member.state != "active":
        raise Rejected("revoked", "this client takes part no longer")
    round = open_round(tx, row.id)
    if round is None or round.state != "collecting" or tx.now() >= round.deadline:
        return None
    taking_part = tx.session.get(ParticipantRow, (row.id, round.number, client))
    if taking_part is None:
        return None
    if taking_part.state != "sampled" and not is_awaited(tx, row.id, round.number, client):
        return None
    opened_with = members_at_opening(find_session(tx, row.id, round.number))
    return AssignmentBody(
        study=study,
        client=client,
        round=round.number,
        phase="train",
        deadline=at(round.deadline),
        model=model_info(tx.session.get_one(ModelRow, (row.id, round.base_version))),
        settings_sha256=row.settings_sha256,
        roster_sha256=row.roster_sha256 if opened_with is None else opened_with[0],
        ledger=ledger_head(study, tx.session.get_one(BudgetRow, row.id)),
    )
