"""The ledger as clients read it: page by page, under a signed head."""

from __future__ import annotations

from study_protocol.study.messages import LedgerPage
from study_protocol.wire.signing import LEDGER_HEAD, decode_public_key, verify_document
from tests.factories.hospital_double import update
from tests.factories.ledgers import kinds_in
from tests.factories.live_coordinator import Live


def test_the_ledger_is_read_by_clients_and_signed(here: Live, study: str) -> None:
    hospitals = here.running(study, "north", "south")
    for who in hospitals:
        assert here.put_update(who, 1, update()).status_code == 201
    here.work()
    page = LedgerPage.model_validate_json(here.signed(hospitals[0], "GET", f"/v1/studies/{study}/ledger").content)
    key = decode_public_key(here.operator("GET", f"/v1/studies/{study}").json()["coordinator_key"])
    verify_document(key, LEDGER_HEAD, page.head.head.model_dump(mode="json"), page.head.signature)
    assert page.head.head.entries == len(page.entries)
    assert kinds_in(page.entries)[:3] == ["opened", "reserved", "settled"]


def test_the_ledger_is_read_page_by_page(here: Live, study: str) -> None:
    here.running(study, "north", "south")
    page = here.operator("GET", f"/v1/studies/{study}/ledger?after=1&limit=1").json()
    assert [entry["sequence"] for entry in page["entries"]] == [2]
    assert page["head"]["head"]["entries"] >= 2
