"""What a hospital puts into the sums of a masked study, and what it keeps of them."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from client_sdk.api.client import ServerClock, Signature
from client_sdk.guard.policy import Floors
from client_sdk.identity import Identity
from client_sdk.secure_sum.delivery import MaskedDelivery, SummedRounds, from_bytes
from client_sdk.secure_sum.refusals import StateRefused
from client_sdk.secure_sum.session import SecureSumClient
from client_sdk.secure_sum.store import FileStore, Opened, erase_expired, keep_opened, record_of
from client_sdk.study.hospital import Hospital
from client_sdk.study.verifier import active_fingerprint
from private_learning.training import Contribution, spec_of_model
from server.domain import secure_sum as views
from study_protocol.randomness.source import RoundRandomness, SecureRandomness
from study_protocol.secure_sum.parameters import vectors_of
from study_protocol.study.messages import Roster, RosterEntry
from study_protocol.wire.signing import encode_public_key
from tests.factories.masked_studies import reported_log_moments
from tests.factories.secure_sum import EXPIRES, LEDGER, MODEL, NOW, ROUND, STUDY, Run, World, small_counts
from tests.factories.settings import settings

RECORDS = 137
SETTINGS = settings("sequential", masked=True, bayesian=True)
SPEC = spec_of_model(torch.nn.Linear(2, 3))


def study(folder: Path, records: float | None) -> MaskedDelivery:
    """A delivery whose checked entries tell this number; there is no coordinator who could be asked for another."""
    client: Any = SimpleNamespace()
    summed = SummedRounds(SETTINGS, SPEC, _streams, RECORDS)
    membership: Any = SimpleNamespace(study="sepsis", client="mercy")
    floors = Floors(1, 4, False)
    return MaskedDelivery(client, membership, floors, summed, folder, _nobody, lambda: None, lambda: records, _charge)


def _charge(round: int) -> tuple[int, str]:
    return LEDGER


def _nobody(assignment: object) -> Roster:
    raise AssertionError("no session is joined here")


def _streams(round: int) -> RoundRandomness:
    return SecureRandomness().in_round("mercy", round)


def reported(made: MaskedDelivery, round: int) -> float:
    vectors = vectors_of(SETTINGS, SPEC, 5)
    update = {name: np.full(shape, 0.01, np.float32) for name, (shape, _) in SPEC.items()}
    body = made.body(round, vectors, Contribution(update, None), reported_log_moments((0.5, 0.1, 0.2, 0.3, 0.4)))
    (spec,) = [one for one in vectors if one.name == "metrics"]
    return int(from_bytes(body)[0]["metrics"][0]) / 2**spec.scale_bits


def test_the_number_of_records_is_told_until_the_ledger_knows_their_sum(tmp_path: Path) -> None:
    assert reported(study(tmp_path, None), 1) == pytest.approx(RECORDS, abs=1e-3)
    assert reported(study(tmp_path, 600.0), 2) == 0


def test_it_is_never_in_two_sums_that_this_hospital_opened(tmp_path: Path) -> None:
    made = study(tmp_path, None)
    made._store = FileStore(tmp_path)
    opened = Opened(round=3, cohort=("mercy",), survivors=("mercy",), model="0" * 64)
    keep_opened(made._store, "sepsis", opened)
    assert reported(made, 3) == pytest.approx(RECORDS, abs=1e-3)
    assert reported(made, 5) == 0
    made.close()


ME = "h000"
OTHER_WORDS = {"terms": np.array([5, 5, 5], "<u4")}


def begun(folder: Path) -> Run:
    """A session in which everybody has sent shares; this hospital's state is in `folder`."""
    world = World(5)
    store: Any = FileStore(folder)
    world.hospitals[ME].store = store
    run = Run(world, small_counts(world)).upto("masked")
    store.close()
    return run


def after_a_restart(folder: Path, run: Run, *, round: int = ROUND, now: int = NOW) -> SecureSumClient:
    """The hospital's half, as the process that was started again finds it."""
    mine = run.world.hospitals[ME]
    members = [
        RosterEntry(client=name, public_key=encode_public_key(key), state="active")
        for name, key in run.world.roster.items()
    ]
    roster = Roster(study=STUDY, members=members, fingerprint="0" * 64)
    client: Any = SimpleNamespace(
        credentials=Signature(mine.identity, ME, STUDY, "https://wardround.example"),
        clock=SimpleNamespace(read=lambda: now),
    )
    coordinator = encode_public_key(run.world.coordinator.public_key())
    membership: Any = SimpleNamespace(study=STUDY, client=ME, coordinator_key=coordinator)
    summed = SummedRounds(SETTINGS, SPEC, _streams, RECORDS)
    assignment: Any = SimpleNamespace(
        round=round,
        roster_sha256=active_fingerprint(roster),
        model=SimpleNamespace(sha256=MODEL, clip_norm=None),
        query=None,
        attempt=None,
    )
    floors = Floors(1, 4, False)
    made = MaskedDelivery(
        client, membership, floors, summed, folder, lambda _: roster, lambda: None, lambda: None, _charge
    )
    made._of(assignment)
    made.close()
    return SecureSumClient(mine.party, STUDY, ROUND, FileStore(folder))


def test_a_restart_goes_on_where_it_was(tmp_path: Path) -> None:
    run = begun(tmp_path / "state")
    again = after_a_restart(tmp_path / "state", run)
    assert again.phase == "shared"
    again.mask(views.inbox(run.session, ME), OTHER_WORDS, NOW)
    assert again.phase == "masked"


def test_a_directory_put_back_from_a_copy_never_masks_again(tmp_path: Path) -> None:
    here, copy = tmp_path / "state", tmp_path / "copy"
    run = begun(here)
    shutil.copytree(here, copy)
    store = FileStore(here)
    mine = run.world.hospitals[ME]
    SecureSumClient(mine.party, STUDY, ROUND, store).mask(views.inbox(run.session, ME), run.words[ME], NOW)
    store.close()
    shutil.rmtree(here)
    shutil.copytree(copy, here)
    again = after_a_restart(here, run)
    assert again.phase == "ended"
    # Two vectors under one stream: their difference is that of the words.
    with pytest.raises(StateRefused, match="secrets are erased"):
        again.mask(views.inbox(run.session, ME), OTHER_WORDS, NOW)


@pytest.mark.parametrize(("late", "kept"), [(0, True), (1, False)], ids=["until it expires", "not after"])
def test_a_hospital_killed_in_a_round_keeps_its_secrets_no_longer_than_the_session(
    tmp_path: Path, late: int, kept: bool
) -> None:
    here = tmp_path / "state"
    run = begun(here)
    after_a_restart(here, run, round=ROUND + 1, now=EXPIRES + late)._store.close()  # type: ignore[attr-defined]
    store = FileStore(here)
    assert store.has_secrets(STUDY, ROUND) is kept
    store.close()


@pytest.mark.parametrize(("late", "kept"), [(0, True), (1, False)], ids=["until it expires", "not after"])
def test_whoever_opens_the_hospital_erases_what_has_expired(tmp_path: Path, late: int, kept: bool) -> None:
    """No round is taken part in: the study may be over, or the hospital out of it."""
    Identity.create(tmp_path)
    folder = tmp_path / "outbox" / STUDY / "secure-sum"
    begun(folder)
    stored = folder / f"{STUDY}.{ROUND}.json"
    before = stored.read_bytes()
    Hospital(Identity.open(tmp_path), clock=ServerClock(lambda: float(EXPIRES + late))).erase_expired()
    assert ('"secrets":null' not in stored.read_text()) is kept
    assert (stored.read_bytes() == before) is kept
    # By the real clock, decades later.
    Hospital.open(tmp_path)
    assert '"secrets":null' in stored.read_text()


@pytest.mark.parametrize(("late", "kept"), [(0, True), (1, False)], ids=["until it expires", "not after"])
def test_digests_of_an_opened_sum_go_though_nobody_came_back_to_check_it(tmp_path: Path, late: int, kept: bool) -> None:
    """Killed after its shares had left: of few possible values a digest is as good as the value."""
    world = World(5)
    world.hospitals[ME].store = FileStore(tmp_path)
    Run(world, small_counts(world)).finish()
    store = world.hospitals[ME].store
    assert record_of(store, STUDY, ROUND).words
    # Looked at before, too: it is not forgotten that something is left to erase.
    store.erase_expired(NOW)
    assert not store.holds_secrets
    store.erase_expired(EXPIRES + late)
    assert (record_of(store, STUDY, ROUND).words is not None) is kept
    assert record_of(store, STUDY, ROUND).released
    store.close()


def test_a_session_that_another_process_holds_is_that_processes_to_erase(tmp_path: Path) -> None:
    begun(tmp_path)
    stored = tmp_path / f"{STUDY}.{ROUND}.json"
    store = FileStore(tmp_path)
    erase_expired(tmp_path, EXPIRES + 1)
    assert '"secrets":null' not in stored.read_text()
    store.erase_expired(EXPIRES + 1)
    assert '"secrets":null' in stored.read_text()
    store.close()


def test_a_damaged_record_does_not_keep_the_others_secrets(tmp_path: Path) -> None:
    begun(tmp_path)
    (tmp_path / f"{STUDY}.0.json").write_text("{")
    erase_expired(tmp_path, EXPIRES + 1)
    assert '"secrets":null' in (tmp_path / f"{STUDY}.{ROUND}.json").read_text()
