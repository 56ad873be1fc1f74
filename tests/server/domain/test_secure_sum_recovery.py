"""Whole sessions in one process: every drop-out, every encoding, wrong shares, wrong sums."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.domain import secure_sum as domain
from server.domain import secure_sum_recovery as recovery
from server.domain.secure_sum import inbox
from server.domain.secure_sum_session import Declined
from study_protocol.secure_sum import masking, transcript
from study_protocol.secure_sum import vectors as secure_sum_vectors
from study_protocol.secure_sum.messages import min_threshold
from study_protocol.secure_sum.shamir import SHARE_BYTES
from study_protocol.secure_sum.vectors import (
    ThresholdGrid,
    VectorSpec,
    cost_vector,
    count_vector,
    largest_cap,
    maximum_vector,
)
from tests.factories.masked_memory import sum_of
from tests.factories.secure_sum import STEPS, Run, World, small_counts, stream


def survivors_of(lost: dict[str, set[str]], names: list[str]) -> set[str]:
    early = set().union(*(lost.get(step, set()) for step in ("keys", "shares", "masked")))
    return set(names) - early


def expected_counts(run: Run, names: set[str]) -> list[int]:
    return [sum(int(run.words[name]["terms"][i]) for name in names) for i in range(3)]


@pytest.mark.quick(
    "consistency-4-1",
    "consistency-5-1",
    "keys-4-1",
    "keys-5-1",
    "masked-4-1",
    "masked-5-1",
    "shares-4-1",
    "shares-5-1",
    "unmask-4-1",
    "unmask-5-1",
)
@pytest.mark.parametrize(("clients", "colluders"), [(4, 1), (5, 1), (7, 1), (8, 2)])
@pytest.mark.parametrize("step", STEPS)
def test_losing_any_number_at_any_step_recovers_or_ends_as_specified(step, clients, colluders) -> None:
    threshold = min_threshold(clients, colluders)
    least = max(threshold, colluders + 3) if step in ("keys", "shares", "masked") else threshold
    for count in range(clients - least + 2):
        world = World(clients, colluders)
        lost = {step: set(world.names[-count:] if count else [])}
        run = Run(world, small_counts(world), lost).finish()
        if clients - count >= least:
            totals = run.totals()
            assert isinstance(totals, dict), totals
            assert totals["terms"][:3].tolist() == expected_counts(run, survivors_of(lost, world.names))
        elif step in ("keys", "shares", "masked"):
            wanted = {"keys": "too-few-keys", "shares": "too-few-shares", "masked": "too-few-survivors"}[step]
            assert run.session.failure == wanted
            assert not run.session.unmasks
        else:
            assert run.session.phase == step
            assert isinstance(run.totals(), Declined)


@pytest.mark.slow
def test_losing_one_at_every_pair_of_steps() -> None:
    for first, second in itertools.combinations(STEPS, 2):
        world = World(7)
        lost = {first: {"h002"}, second: {"h005"}}
        run = Run(world, small_counts(world), lost).finish()
        totals = run.totals()
        assert isinstance(totals, dict), (first, second, totals)
        assert totals["terms"][:3].tolist() == expected_counts(run, survivors_of(lost, world.names))


GRID = ThresholdGrid(low=0.5, high=64.0, count=8)
VALUES = {
    "update": st.lists(st.floats(-2, 2), min_size=3, max_size=3),
    "terms": st.lists(st.floats(0, 1e4).map(abs), min_size=2, max_size=2),
    "counts": st.lists(st.integers(0, 1_000), min_size=4, max_size=4),
    "worst": st.lists(st.floats(0, 60).map(abs), min_size=1, max_size=1),
}


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.data())
def test_decoded_sums_of_any_session_keep_their_law(data) -> None:
    n = data.draw(st.integers(4, 9), label="clients")
    specs = (
        VectorSpec(name="update", encoding="signed", length=3, ring_bits=32, scale_bits=20, cap=largest_cap(n, 32)),
        cost_vector("terms", 2, n),
        count_vector("counts", 4, n),
        maximum_vector("worst", 1, GRID),
    )
    world = World(n, 1, specs)
    spare = n - max(min_threshold(n, 1), 4)
    silent = data.draw(st.permutations(world.names), label="order")[: data.draw(st.integers(0, spare), label="lost")]
    lost: dict[str, set[str]] = {}
    for name in silent:
        lost.setdefault(data.draw(st.sampled_from(STEPS), label="step"), set()).add(name)
    values = {name: {spec.name: data.draw(VALUES[spec.name]) for spec in specs} for name in world.names}
    draw = stream("blinding")
    words = {
        name: {spec.name: secure_sum_vectors.encode(spec, np.array(values[name][spec.name]), draw) for spec in specs}
        for name in world.names
    }
    run = Run(world, words, lost).finish()
    totals = run.totals()
    assert isinstance(totals, dict), totals
    names = survivors_of(lost, world.names)
    assert set(run.session.survivors) == names
    for spec in specs:
        columns = zip(*(values[name][spec.name] for name in sorted(names)), strict=True)
        for got, column in zip(secure_sum_vectors.decode(spec, totals[spec.name]), columns, strict=True):
            exact, sum_ = sum(Fraction(x) for x in column), Fraction(float(got))
            if spec.name == "update":
                assert abs(sum_ - exact) <= Fraction(len(column), 2 ** (spec.scale_bits + 1))
            elif spec.name == "terms":
                assert exact <= sum_ <= exact + Fraction(len(column), 2**32) + exact / 2**52
            elif spec.name == "counts":
                assert sum_ == exact
            else:
                assert got == next(g for g in GRID.thresholds if max(column) <= g)


def test_saturated_costs_make_the_total_infinite() -> None:
    world = World(4, 1, (cost_vector("terms", 2, 4),))
    spec = world.vectors[0]
    words = {
        name: {
            "terms": secure_sum_vectors.encode(spec, np.array([1.5, np.inf if name == "h002" else 0.25]), stream(""))
        }
        for name in world.names
    }
    totals = Run(world, words).finish().totals()
    assert secure_sum_vectors.decode(spec, totals["terms"]).tolist() == [6.0, np.inf]


def with_bad_shares(run: Run, liars: set[str], owners: set[str]) -> domain.Session:
    """Replies in which `liars` open wrong shares of `owners`, correctly signed."""
    unmasks = dict(run.session.unmasks)
    for name in liars:
        opened = unmasks[name].shares
        right = (opened[i : i + SHARE_BYTES] for i in range(0, len(opened), SHARE_BYTES))
        shares = (
            bytes(35) + b"\x01" if peer in owners else share
            for peer, share in zip(run.session.peers(name), right, strict=True)
        )
        unmasks[name] = unmasks[name].model_copy(update={"shares": b"".join(shares)})
    return replace(run.session, unmasks=unmasks)


@pytest.mark.parametrize("owners", [{"h001"}, {"h006"}, {"h000", "h003", "h006"}])
@pytest.mark.parametrize("liars", [{"h000"}, {"h005"}, {"h001", "h004"}])
def test_wrong_shares_are_noticed_named_and_worked_around(owners, liars) -> None:
    world = World(9)
    run = Run(world, small_counts(world), {"masked": {"h006"}}).finish()
    honest = recovery.recover(run.session)
    recovered = recovery.recover(with_bad_shares(run, liars, owners))
    assert isinstance(recovered, recovery.Recovered)
    assert (recovered.seeds, recovered.mask_keys) == (honest.seeds, honest.mask_keys)
    assert recovered.suspects == tuple(sorted(liars))
    assert honest.suspects == ()


def test_too_many_wrong_shares_ask_for_more_replies() -> None:
    world = World(7)
    run = Run(world, small_counts(world)).finish()
    declined = recovery.recover(with_bad_shares(run, {"h000", "h001", "h002"}, {"h004"}))
    assert isinstance(declined, Declined)
    assert declined.code == "wrong-shares"
    assert "h004" in declined.detail


def test_too_few_replies_recover_nothing() -> None:
    world = World(7)
    run = Run(world, small_counts(world), {"unmask": {"h000", "h001", "h002"}}).finish()
    declined = recovery.recover(run.session)
    assert isinstance(declined, Declined)
    assert declined.code == "too-few-replies"


def test_t_minus_one_replies_and_all_octets_leave_the_sum_masked() -> None:
    # What the coordinator could still do by itself: combine one reply too few.
    world = World(7)
    run = Run(world, small_counts(world)).finish()
    few = dict(list(run.session.unmasks.items())[: run.session.parameters.threshold - 1])
    session = replace(run.session, unmasks=few)
    candidates = recovery._candidates(session, recovery._Replies.of(session))
    assert candidates.keys() == set(session.sharers)
    assert not any(secret and recovery._is_secret_of(session, owner, secret) for owner, secret in candidates.items())


@pytest.mark.parametrize("wrong", ["count", "missing", "twice", "word"])
def test_the_canary_notices_sums_that_do_not_fit(wrong) -> None:
    world = World(5)
    run = Run(world, small_counts(world)).finish()
    recovered = recovery.recover(run.session)
    spec = run.session.parameters.vectors[0]
    vectors = [run.uploads[name].vectors["terms"] for name in run.session.survivors]
    damaged = vectors[0].copy()
    damaged[-1 if wrong == "word" else 3] += 1
    summed = {
        "count": [damaged, *vectors[1:]],
        "missing": vectors[1:],
        "twice": [*vectors, vectors[0]],
        "word": [damaged, *vectors[1:]],
    }[wrong]
    assert sum_of(run.session, recovered, spec, vectors) is not None
    assert sum_of(run.session, recovered, spec, summed) is None
    failed = recovery.discarded(run.session)
    assert (failed.phase, failed.failure) == ("failed", "canary-mismatch")


def test_the_result_names_survivors_and_is_signed() -> None:
    world = World(5)
    run = Run(world, small_counts(world), {"masked": {"h003"}}).finish()
    session, result = recovery.summed(run.session, {"terms": b"d" * 32}, world.coordinator.sign)
    assert session.phase == "summed"
    assert result.survivors == ("h000", "h001", "h002", "h004")
    statement = transcript.result_statement(session.h1, session.survivors_hash, result.digests)
    assert transcript.is_signed(world.coordinator.public_key(), result.signature, statement)


def test_a_late_upload_of_a_lost_client_stays_masked_by_its_own_seed() -> None:
    # Its mask key is rebuilt, so its pair masks come off; the self mask, whose seed nobody opened, remains.
    world = World(6)
    run = Run(world, small_counts(world)).upto("masked")
    late = run.hospital("h005").mask(inbox(run.session, "h005"), run.words["h005"], 1_000).vectors["terms"].copy()
    run.lost = {"masked": {"h005"}}
    run.masked()
    run.consistency()
    run.unmask()
    recovered = recovery.recover(run.session)
    assert set(recovered.mask_keys) == {"h005"}
    assert "h005" not in recovered.seeds
    agreement = masking.KeyAgreement("h005", recovered.mask_keys["h005"], run.session.h1)
    public = {e.client: e.mask_key for e in run.session.cohort}
    keys = [agreement.mask_key(peer, public[peer], "terms") for peer in run.session.survivors]
    masking.apply_masks(late, add=keys)
    assert late[:4].tolist() != [*run.words["h005"]["terms"].tolist(), 1]
