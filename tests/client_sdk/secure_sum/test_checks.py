"""A coordinator that deviates in a session's parameters: refused by the hospital, in words, its state unchanged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from client_sdk.guard.policy import Floors
from client_sdk.secure_sum.refusals import ParametersRefused
from client_sdk.secure_sum.store import RoundRecord, Secrets, SessionRecord
from study_protocol.secure_sum import transcript
from study_protocol.secure_sum.messages import KeysMessage, SessionParameters
from study_protocol.secure_sum.vectors import VectorSpec, count_vector
from tests.factories.deviating_coordinator import GRAPHS, ME, me, refuses, started
from tests.factories.secure_sum import EXPIRES, NOW, ROUND, STUDY


@GRAPHS
@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"model": "00" * 32}, "wrong-model", "another model"),
        ({"roster": "00" * 32}, "wrong-roster", "another roster"),
        ({"round": ROUND + 1}, "wrong-round", "not to this one"),
        ({"study": "other"}, "wrong-round", "another study"),
        ({"threshold": 5, "min_survivors": 5}, "wrong-parameters", "threshold is not what follows"),
        ({"min_survivors": 6}, "wrong-parameters", "min_survivors is not what follows"),
        ({"expires": EXPIRES + 1}, "wrong-parameters", "expires is not what follows"),
        (
            {"deadlines": {"keys": 2**53 - 1, "shares": 2**53 - 1, "masked": 2**53 - 1}, "expires": 2**53 - 1},
            "unordered-deadlines",
            "no times of a study",
        ),
        ({"threshold": 3}, "low-threshold", "threshold 3 is below 4"),
        ({"min_survivors": 2}, "low-survivors", "min_survivors 2 is below"),
        ({"colluders": 0}, "wrong-parameters", "colluders is not what follows"),
        ({"settings": "00" * 32}, "wrong-settings", "other settings"),
        ({"ledger_entries": 8}, "wrong-ledger", "another entry as the round's charge"),
        ({"ledger_sha256": "00" * 32}, "wrong-ledger", "another ledger"),
        ({"query": "00" * 32}, "wrong-query", "another question"),
        ({"query": "00" * 32, "model": None}, "wrong-query", "another question"),
        ({"clients": 2, "neighbours": 1, "threshold": 2}, "too-few-clients", "each would learn"),
        (
            {"clients": 3, "neighbours": 2, "threshold": 3, "min_survivors": 3},
            "sum-of-three",
            "not allowed here: allow_three",
        ),
        ({"suite": "none"}, "unknown-suite", "not known"),
        ({"vectors": (count_vector("terms", 4, 6),)}, "wrong-vectors", "other vectors"),
        ({"expires": 4_000, "deadlines": {"keys": 1, "shares": 2, "masked": 3}}, None, ""),
    ],
)
def test_parameters_that_differ_from_the_assignment_or_weaken_the_rules(changes, code, words, neighbours) -> None:
    run = started("keys", neighbours=neighbours)
    signed = run.world.signed(run.world.parameters(**changes))
    if code is None:
        refuses(run, lambda: me(run).advertise(signed, run.world.plan, 4_001), "session-expired", "expired")
    else:
        refuses(run, lambda: me(run).advertise(signed, run.world.plan, NOW), code, words)


def test_more_clients_than_the_roster_has() -> None:
    run = started("keys")
    changes = {"clients": 7, "neighbours": 6, "threshold": 5, "min_survivors": 5}
    signed = run.world.signed(run.world.parameters(**changes))
    refuses(run, lambda: me(run).advertise(signed, run.world.plan, NOW), "too-many-clients", "than the roster")


@pytest.mark.parametrize("name", [name for name in SessionParameters.model_fields if name not in ("session", "suite")])
def test_whatever_differs_from_what_was_shown_carries_what_had_to_be_signed(name: str) -> None:
    """Of every field, so that one which is added later is not left out of the comparison."""
    run = started("keys")
    plan, true = run.world.plan, run.world.parameters()
    other = OTHER[name](getattr(true, name))
    signed = run.world.signed(SessionParameters.model_construct(**{**dict(true), name: other}))
    with pytest.raises(ParametersRefused) as refused:
        me(run).advertise(signed, plan, NOW)
    # Another version alone is nobody's lie.
    assert (refused.value.proof is None) == (name == "version")


OTHER: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("settings", "ledger_sha256", "roster", "query", "model"), lambda _: "77" * 32),
    **dict.fromkeys(("ledger_entries", "round", "clients", "threshold", "min_survivors", "expires"), lambda n: n + 1),
    "version": lambda _: 3,
    "study": lambda _: "other",
    "colluders": lambda _: 0,
    "neighbours": lambda n: n - 1,
    "vectors": lambda _: (count_vector("terms", 4, 6),),
    "deadlines": lambda times: times.model_copy(update={"shares": times.shares + 1}),
}


def test_a_session_of_an_earlier_version_is_gone_on_with_and_never_joined() -> None:
    """A coordinator or a hospital that was brought up to date in the middle of a round."""
    run = started("keys")
    hospital, plan = run.world.hospitals[ME], run.world.plan
    made = plan.parameters(6, session=run.world.draw(32), now=NOW, version=1)
    assert SessionParameters.from_bytes(made.to_bytes()) == made
    assert b"ledger" not in made.to_bytes()
    signed = run.world.signed(made)
    refuses(run, lambda: me(run).advertise(signed, plan, NOW), "other-version", "brought up to date")
    # As an earlier version has left it.
    joined = SessionRecord(
        parameters=signed.parameters,
        secrets=Secrets(share_private=bytes(32), mask_private=bytes(32), seed=bytes(32)),
        keys=KeysMessage(client=ME, share_key=bytes(32), mask_key=bytes(32), signature=bytes(64)),
    )
    record = RoundRecord(study=STUDY, round=ROUND, sessions=(made.session,), session=joined)
    hospital.store.save(STUDY, ROUND, record.to_bytes())
    assert me(run).advertise(signed, plan, NOW) == joined.keys
    # Of another model than it was joined for it is none.
    other = replace(plan, model="77" * 32)
    refuses(run, lambda: me(run).advertise(signed, other, NOW), "wrong-model", "another model")


@GRAPHS
def test_another_graph_than_the_studys(neighbours) -> None:
    run = started("keys", neighbours=neighbours)
    for others, code, words in (
        (5 if neighbours else 4, "wrong-parameters", "neighbours is not what follows"),
        (3, "unsound-graph", "3 neighbours for 6 clients: all 5 others, or fewer, an even number above c = 1"),
        (2, "unreachable-threshold", "3 holders of a secret cannot reach 4"),
    ):
        signed = run.world.signed(run.world.parameters(neighbours=others))
        refuses(run, lambda signed=signed: me(run).advertise(signed, run.world.plan, NOW), code, words)


@GRAPHS
def test_a_session_of_years_hence_is_not_joined(neighbours) -> None:
    """Its secrets would live until it expires; whoever signs the parameters must not choose for how long."""
    run = started("keys", neighbours=neighbours)
    plan = run.world.plan
    for later, refused in ((300, False), (301, True), (10 * 365 * 86_400, True)):
        made = plan.parameters(len(run.world.hospitals), session=run.world.draw(32), now=NOW + later)
        signed = run.world.signed(made)
        if refused:
            refuses(run, lambda signed=signed: me(run).advertise(signed, plan, NOW), "future-session", "later than now")
        else:
            assert me(run).advertise(signed, plan, NOW)


@GRAPHS
def test_sums_smaller_than_this_hospital_allows(neighbours) -> None:
    run = started("keys", neighbours=neighbours)
    hospital = run.world.hospitals[ME]
    hospital.party = replace(hospital.party, floors=Floors(colluders=1, min_survivors=5, allow_three=False))
    refuses(run, lambda: me(run).advertise(run.signed, run.world.plan, NOW), "low-survivors", "this hospital asks 5")
    run.world.min_survivors = 5
    more = run.world.signed(run.world.parameters())
    assert me(run).advertise(more, run.world.plan, NOW)


@pytest.mark.parametrize("changes", [{"colluders": 1}, {"min_survivors": 6}])
def test_a_session_must_bear_what_the_studys_noise_is_counted_on(changes: dict[str, int]) -> None:
    """Also where this hospital itself asks for less."""
    run = started("keys", clients=8, colluders=2)
    run.world.min_survivors = 7
    hospital = run.world.hospitals[ME]
    hospital.party = replace(hospital.party, floors=Floors(colluders=1, min_survivors=4, allow_three=False))
    less = run.world.signed(run.world.parameters(**changes))
    words = f"{next(iter(changes))} is not what follows"
    refuses(run, lambda: me(run).advertise(less, run.world.plan, NOW), "wrong-parameters", words)
    assert me(run).advertise(run.world.signed(run.world.parameters()), run.world.plan, NOW)


@GRAPHS
def test_wrap_around_bait_at_the_range_limit(neighbours) -> None:
    bait = VectorSpec(name="terms", encoding="counts", length=3, ring_bits=32, scale_bits=0, cap=2**31 // 6 + 1)
    run = started("keys", neighbours=neighbours)
    signed = run.world.signed(run.world.parameters(vectors=(bait,)))
    run.world.vectors = (bait,)
    refuses(run, lambda: me(run).advertise(signed, run.world.plan, NOW), "unsound-vector", "would wrap the 32-bit ring")


@GRAPHS
def test_parameters_without_the_coordinators_signature(neighbours) -> None:
    run = started("keys", neighbours=neighbours)
    other = Ed25519PrivateKey.generate()
    statement = transcript.parameters_statement(transcript.parameters_hash(run.signed.parameters))
    for signature in (bytes(64), other.sign(statement), other.sign(run.signed.parameters)):
        signed = run.signed.model_copy(update={"signature": signature})
        refuses(run, lambda s=signed: me(run).advertise(s, run.world.plan, NOW), "unsigned-parameters", "not valid")


@GRAPHS
def test_parameters_in_another_spelling(neighbours) -> None:
    run = started("keys", neighbours=neighbours)
    raw = run.signed.parameters.replace(b'"round":7', b'"round":8,"round":7')
    statement = transcript.parameters_statement(transcript.parameters_hash(raw))
    signed = run.signed.model_copy(
        update={"parameters": raw, "signature": transcript.sign(run.world.coordinator, statement)}
    )
    refuses(run, lambda: me(run).advertise(signed, run.world.plan, NOW), "malformed-parameters", "canonical")
