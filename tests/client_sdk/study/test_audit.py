"""Ledgers that were written anew with the coordinator's own key: what an auditor refuses, and in which words."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import settings as budget_of_examples
from hypothesis import strategies as st

from accounting.budget.budget import Budget
from accounting.budget.ledger import Entry, append, digest
from accounting.plan.report import DISTANCE_BINS
from client_sdk.errors import LedgerNotExtended
from client_sdk.study.audit import audited, require_signed
from study_protocol.study.messages import LedgerHead, SignedLedgerHead
from study_protocol.study.plan_of import plan_of
from study_protocol.study.settings import StudySettings
from study_protocol.wire.signing import LEDGER_HEAD, encode_public_key, sign_document
from tests.factories.ledgers import after, opened
from tests.factories.settings import ORDERS, limit, settings
from wardround.cli.officer.verify import read_export

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
MOMENTS = {"filter": 0.2, "moments": [0.1] * len(ORDERS), "complete": False}


def study(scheme: str = "parallel", **options: Any) -> StudySettings:
    bayesian: Any = {"composition": "holder"} if scheme == "client" else True
    return settings(scheme, bayesian=bayesian, max_steps=4, **options)


def counts(low: int) -> dict[str, Any]:
    return {"counts": [low] + [0] * (DISTANCE_BINS - 2) + [1]}


def honest(chosen: StudySettings, report: Any) -> list[Entry]:
    entries = opened(plan_of(chosen), chosen.as_json())
    for number in (1, 2):
        entries.append(after(entries, "reserved", number))
        entries.append(after(entries, "settled", number, report=report))
    return [*entries, after(entries, "finished", reason="stopped", report=None)]


def rewritten(entries: list[Entry], change: Callable[[Entry, dict[str, Any]], None]) -> list[Entry]:
    """Every body as `change` leaves it, chained anew: what whoever holds the coordinator's key can write."""
    found: list[Entry] = []
    for entry in entries:
        body = copy.deepcopy(dict(entry.body))
        change(entry, body)
        found.append(append(found[-1] if found else None, entry.kind, entry.round, body))
    return found


def exported(entries: list[Entry], to: Path) -> Path:
    head = LedgerHead(study="s", entries=len(entries), sha256=entries[-1].sha256)
    signature = sign_document(KEY, LEDGER_HEAD, head.model_dump(mode="json"))
    signed = SignedLedgerHead(head=head, signature=signature)
    roster = {"study": "s", "members": [], "fingerprint": "a" * 64}
    key = encode_public_key(KEY.public_key())
    last = {"head": signed.model_dump(mode="json"), "coordinator_key": key, "roster": roster, "witnesses": []}
    to.write_text("".join(json.dumps(line) + "\n" for line in [*(e.to_dict() for e in entries), last]))
    return to


@pytest.mark.parametrize(("scheme", "report"), [("parallel", MOMENTS), ("client", counts(2))])
def test_an_honest_ledger_is_told_in_words(scheme: str, report: Any, tmp_path: Path) -> None:
    entries, told = read_export(exported(honest(study(scheme), report), tmp_path / "ledger.jsonl"))
    require_signed(told.coordinator_key, "s", told.head, entries)
    found = audited("s", entries)
    assert found.budget.charged_rounds == 2
    assert found.words()[2].startswith("2 rounds reserved: 2 settled")
    asked = replace(found, kinds=found.kinds + Counter(asked=3))
    assert asked.words()[2].startswith("2 rounds reserved and 3 for queries: 2 settled")
    # The plan is computed here, not read: it is that of the settings, to the last field.
    assert found.budget.plan == plan_of(study(scheme))


def test_a_hundred_times_the_noise_in_the_plan_is_not_that_of_the_settings() -> None:
    def louder(entry: Entry, body: dict[str, Any]) -> None:
        if entry.kind == "opened":
            body["plan"]["noise_multiplier"] *= 100

    with pytest.raises(LedgerNotExtended, match=r"entry 1: its plan is not the plan of its settings: noise_multiplier"):
        audited("s", rewritten(honest(study(), MOMENTS), louder))


@pytest.mark.parametrize("name", ["max_steps", "sampling_rate", "disclosure", "limits", "honest_survivors", "observer"])
def test_no_field_of_the_plan_can_be_another(name: str) -> None:
    other = study("joint", client_clip_norm=3.0, disclosure="at-end", noise_multiplier=9.0, sampling_rate=0.9)
    plan = plan_of(settings("joint", bayesian=True, max_steps=9, client_clip_norm=3.0)).to_dict()
    plan["limits"][0]["epsilon"], plan["honest_survivors"], plan["observer"] = 49.0, 2, "coordinator"

    def changed(entry: Entry, body: dict[str, Any]) -> None:
        if entry.kind == "opened":
            assert body["plan"][name] != plan[name]
            body["plan"][name] = plan[name]

    with pytest.raises(LedgerNotExtended, match=r"entry 1"):
        audited("s", rewritten(honest(other, None), changed))


def test_settings_that_are_changed_with_the_plan_are_other_settings_than_those_joined_under() -> None:
    """Consistent in itself: the digest that every hospital joined under, and prints, tells them apart."""
    louder = study(noise_multiplier=200.0)
    assert audited("s", honest(louder, MOMENTS)).settings.digest() != study().digest()

    def hidden(entry: Entry, body: dict[str, Any]) -> None:
        body["settings_sha256"] = study().digest()

    with pytest.raises(LedgerNotExtended, match=r"entry 1: its settings do not have the digest"):
        audited("s", rewritten(honest(louder, MOMENTS), hidden))


def test_a_billion_clients_in_the_lowest_bin_are_more_than_there_are() -> None:
    chosen = study("client")
    budget = Budget(plan_of(chosen))
    for number, report in enumerate((counts(2), counts(10**9)), start=1):
        budget.reserve(number)
        budget.happen(1, "settled", number, {"report": report})
    with pytest.raises(LedgerNotExtended, match=r"entry 3: .*1000000001 clients are counted, of 3 members"):
        audited("s", honest(chosen, counts(10**9)))


def test_reports_of_zero_cost_nothing_and_are_refused() -> None:
    zero = {"filter": 0.0, "moments": [0.0] * len(ORDERS), "complete": False}
    with pytest.raises(LedgerNotExtended, match=r"entry 3: .*bounds of zero"):
        audited("s", honest(study(), zero))


@pytest.mark.parametrize(
    "report", [counts(2), {**MOMENTS, "moments": [0.1]}, {"clients": MOMENTS, "records": None}, {**MOMENTS, "x": 1}]
)
def test_a_report_of_another_shape_is_refused(report: Any) -> None:
    with pytest.raises(LedgerNotExtended, match=r"entry 3"):
        audited("s", honest(study(), report))


def test_reports_at_the_end_are_checked_one_by_one() -> None:
    chosen = study("client", disclosure="at-end")
    entries = [entry for entry in honest(chosen, None) if entry.kind != "finished"]
    good = [*entries, after(entries, "finished", reason="stopped", report=[counts(2), None])]
    assert audited("s", good).budget.finished == "stopped"
    for report in ([counts(2)], [counts(2), counts(3)]):
        with pytest.raises(LedgerNotExtended, match=r"entry 6"):
            audited("s", [*entries, after(entries, "finished", reason="stopped", report=report)])


def test_another_study_and_another_key_are_refused(tmp_path: Path) -> None:
    entries, told = read_export(exported(honest(study(), MOMENTS), tmp_path / "ledger.jsonl"))
    with pytest.raises(LedgerNotExtended, match="another study"):
        audited("other", entries)
    with pytest.raises(LedgerNotExtended, match="lead to the head"):
        require_signed(told.coordinator_key, "s", told.head, entries[:-1])
    with pytest.raises(LedgerNotExtended, match="this coordinator's key"):
        require_signed(encode_public_key(Ed25519PrivateKey.generate().public_key()), "s", told.head, entries)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (0, "{"),
        (0, "[]"),
        (0, '{"sequence": 1, "sequence": 1}'),
        (-1, "{}"),
        (-1, '{"head": 1, "coordinator_key": ""}'),
    ],
)
def test_an_export_that_is_none_is_refused(line: int, text: str, tmp_path: Path) -> None:
    file = exported(honest(study(), MOMENTS), tmp_path / "ledger.jsonl")
    lines = file.read_text().splitlines()
    lines[line] = text
    file.write_text("\n".join(lines))
    with pytest.raises(LedgerNotExtended):
        read_export(file)


@budget_of_examples(max_examples=150, deadline=None)
@given(st.data())
def test_whatever_the_settings_and_the_plan_say_it_is_never_another_exception(data: st.DataObject) -> None:
    entries = honest(study(), MOMENTS)
    value = data.draw(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.just(10**400)
        | st.text(max_size=3) | st.lists(st.integers(), max_size=2) | st.just({})
    )  # fmt: skip

    def broken(entry: Entry, body: dict[str, Any]) -> None:
        if entry.kind != "opened":
            return
        at = body[data.draw(st.sampled_from(["settings", "plan"]))]
        while True:
            name = data.draw(st.sampled_from(sorted(at)))
            if isinstance(at[name], dict) and at[name] and data.draw(st.booleans()):
                at = at[name]
                continue
            at[name] = value
            break
        body["settings_sha256"] = digest(body["settings"])

    forged = rewritten(entries, broken)
    same = forged[0].body["settings"] == entries[0].body["settings"]
    try:
        audited("s", forged)
    except LedgerNotExtended:
        return
    # The rest of the ledger names the old digest: only settings that are unchanged pass.
    assert same


def test_the_limit_of_a_study_is_told(tmp_path: Path) -> None:
    chosen = study(limits=[limit("instance", "bayesian"), limit("instance", epsilon=50.0)])
    assert [one["definition"] for one in audited("s", honest(chosen, MOMENTS)).budget.statements()[:2]] == [
        "bayesian",
        "classical",
    ]


def test_bounds_below_what_the_accounting_sample_can_show_are_refused() -> None:
    chosen = study(accounting_sample={"records": 40, "source": "members"})
    assert audited("s", honest(chosen, {"filter": 1e3, "moments": [1e3] * len(ORDERS), "complete": False}))
    tiny = {"filter": 1e-9, "moments": [1e-9] * len(ORDERS), "complete": False}
    with pytest.raises(LedgerNotExtended, match=r"entry 3: .*below what 40 records can show"):
        audited("s", honest(chosen, tiny))


def test_a_clip_norm_that_jumps_is_found_in_the_ledger() -> None:
    chosen = settings(adaptive_clip={"quantile": 0.5, "rate": 0.2}, noise_multiplier=0.5, max_steps=4)

    def book(*norms: float) -> list[Entry]:
        entries = opened(plan_of(chosen), chosen.as_json())
        for number, norm in enumerate(norms):
            if number:
                entries.append(after(entries, "reserved", number))
                entries.append(after(entries, "settled", number, report=None))
            file = {"sha256": f"{number}" * 64, "bytes": 160, "clip_norm": norm}
            entries.append(after(entries, "released", number or None, **file))
        return entries

    assert audited("s", book(1.0, 0.95, 1.04)).names_models
    with pytest.raises(LedgerNotExtended, match=r"more than a factor of 1\.105 from 0\.95"):
        audited("s", book(1.0, 0.95, 1.1))
