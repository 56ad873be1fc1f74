"""The budget as clients read it: signed, and with every limit that the scheme answers for."""

from __future__ import annotations

from study_protocol.study.messages import BudgetStatement
from study_protocol.wire.signing import LEDGER_HEAD, decode_public_key, verify_document
from tests.factories.hospital_double import update
from tests.factories.live_coordinator import Live


def test_the_budget_is_read_by_clients(here: Live, study: str) -> None:
    hospitals = here.running(study, "north", "south")

    def shown() -> BudgetStatement:
        answer = here.signed(hospitals[0], "GET", f"/v1/studies/{study}/budget")
        return BudgetStatement.model_validate_json(answer.content)

    before = shown()
    for who in hospitals:
        assert here.put_update(who, 1, update()).status_code == 201
    here.work()
    after = shown()
    assert after.ledger.entries > before.ledger.entries
    assert {(limit.level, limit.definition) for limit in after.limits} >= {
        ("instance", "classical"),
        ("client", "classical"),
    }
    spent = [limit.spent for limit in after.limits if (limit.level, limit.definition) == ("instance", "classical")]
    assert all(value is not None and 0 < value <= 8.0 for value in spent)


def test_the_head_behind_the_budget_is_the_ledger_s(here: Live, study: str) -> None:
    here.running(study, "north", "south")
    budget = here.operator("GET", f"/v1/studies/{study}/budget").json()["ledger"]
    page = here.operator("GET", f"/v1/studies/{study}/ledger").json()["head"]
    key = decode_public_key(here.operator("GET", f"/v1/studies/{study}").json()["coordinator_key"])
    verify_document(key, LEDGER_HEAD, page["head"], page["signature"])
    assert (budget["entries"], budget["head"]) == (page["head"]["entries"], f"sha256:{page['head']['sha256']}")
