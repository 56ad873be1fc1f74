"""What others see of a hospital's vector, and how often a key is used."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from scipy import stats

from client_sdk.secure_sum.store import RoundRecord, Secrets
from server.domain import secure_sum as views
from server.domain import secure_sum_recovery as recovery
from study_protocol.secure_sum import masking
from study_protocol.secure_sum.vectors import count_vector, largest_cap
from tests.factories.secure_sum import NOW, ROUND, STUDY, Run, World, small_counts

# Each chi-square (256 byte values, at least 4·10^5 bytes) raises a false alarm once in 10^6 seeds; seeds are fixed.
FALSE_ALARM = 1e-6
LENGTH = 100_000


def uniform(words: np.ndarray) -> bool:
    cells = np.bincount(np.ascontiguousarray(words).view(np.uint8), minlength=256)
    return bool(stats.chisquare(cells).pvalue > FALSE_ALARM)


def secrets_of(run: Run, name: str) -> Secrets:
    record = RoundRecord.from_bytes(run.world.hospitals[name].store.load(STUDY, ROUND) or b"")
    assert record.session is not None
    assert record.session.secrets is not None
    return record.session.secrets


@pytest.fixture(scope="module", params=[32, 64])
def masked(request) -> Run:
    """Five hospitals that all send zeros: what is seen is masks alone."""
    bits = request.param
    ring = {"ring_bits": bits, "cap": largest_cap(5, bits)}
    specs = [count_vector(name, LENGTH, 5).model_copy(update=ring) for name in ("terms", "metrics")]
    world = World(5, 1, specs)
    words = {name: {spec.name: np.zeros(LENGTH, spec.dtype) for spec in specs} for name in world.names}
    return Run(world, words).upto("consistency")


def test_the_coordinator_sees_uniform_words(masked) -> None:
    for name in masked.world.names:
        for vector in ("terms", "metrics"):
            assert uniform(masked.uploads[name].vectors[vector][:LENGTH])


def test_two_vectors_of_one_hospital_differ_by_uniform_words(masked) -> None:
    both = masked.uploads["h002"].vectors
    assert uniform((both["terms"] - both["metrics"])[:LENGTH])


def test_sums_over_fewer_than_all_survivors_stay_uniform(masked) -> None:
    uploads = [masked.uploads[name].vectors["terms"] for name in masked.world.names]
    for size in range(2, 5):
        assert uniform(np.sum(uploads[:size], axis=0, dtype=uploads[0].dtype)[:LENGTH])


def test_colluders_with_the_opened_seed_still_see_uniform_words(masked) -> None:
    # The coordinator after unmasking (it knows the seed of h000) with all hospitals but h000 and h001.
    seen = masked.uploads["h000"].vectors["terms"].copy()
    h1 = masked.session.h1
    public = {entry.client: entry.mask_key for entry in masked.session.cohort}
    known = [masking.self_mask_key(secrets_of(masked, "h000").seed, h1, "terms")]
    for name in ("h002", "h003", "h004"):
        agreement = masking.KeyAgreement(name, secrets_of(masked, name).mask_private, h1)
        known.append(agreement.mask_key("h000", public["h000"], "terms"))
    masking.apply_masks(seen, subtract=known)
    assert uniform(seen[:LENGTH])
    last = masking.KeyAgreement("h001", secrets_of(masked, "h001").mask_private, h1)
    masking.apply_masks(seen, subtract=[last.mask_key("h000", public["h000"], "terms")])
    assert not seen[:LENGTH].any()


def test_a_key_masks_once_per_hospital_whatever_is_retried(monkeypatch) -> None:
    used: list[tuple[bytes, bytes]] = []
    real = masking.apply_masks

    def recording(words, *, add=(), subtract=(), head=None) -> None:
        plain = head.tobytes() + words[head.size :].tobytes()
        real(words, add=add, subtract=subtract, head=head)
        used.extend((key, plain) for key in (*add, *subtract))

    specs = (count_vector("terms", 3, 5), count_vector("metrics", 3, 5))
    world = World(5, 1, specs)
    words = {name: {"terms": w["terms"], "metrics": w["terms"] + 1} for name, w in small_counts(world).items()}
    monkeypatch.setattr(masking, "apply_masks", recording)
    for lost in ({"masked": {"h003", "h004"}}, {"unmask": {"h000", "h001", "h002"}}, {}):
        run = Run(world, words, lost).upto("consistency")
        for name in run.uploads:
            run.hospital(name).mask(views.inbox(run.session, name), words[name], NOW)
    messages: dict[bytes, set[bytes]] = {}
    for key, plain in used:
        messages.setdefault(key, set()).add(plain)
    # A pair's key is used by its two ends, a seed's key by one; asking again masks the same message again.
    # In the first session two of five never mask: 3 pairs have both ends, 3 · 2 have one.
    sizes = Counter(len(plains) for plains in messages.values())
    assert set(sizes) <= {1, 2}
    assert sizes[2] == 2 * (3 + 10 + 10)
    assert sizes[1] == 2 * (3 + 5 + 5) + 2 * (3 * 2)


def test_secrets_do_not_show_in_representations() -> None:
    world = World(5)
    run = Run(world, small_counts(world), {"masked": {"h004"}}).finish()
    recovered = recovery.recover(run.session)
    agreement = masking.KeyAgreement("h004", recovered.mask_keys["h004"], run.session.h1)
    stored = [RoundRecord.from_bytes(version) for version in world.hospitals["h001"].store.history]
    shown = repr((recovered, agreement, stored))
    secrets = [*recovered.seeds.values(), *recovered.mask_keys.values()]
    for record in stored:
        if record.session.secrets is not None:
            held = record.session.secrets
            secrets += [held.share_private, held.mask_private, held.seed, *held.shares.values()]
    assert len(secrets) > 15
    assert not any(repr(secret)[2:-1] in shown for secret in secrets)


def test_unmasking_uses_each_key_once() -> None:
    world = World(6)
    run = Run(world, small_counts(world), {"masked": {"h001"}}).finish()
    recovered = recovery.recover(run.session)
    assert set(recovered.seeds) | set(recovered.mask_keys) == set(world.names)
    assert not set(recovered.seeds) & set(recovered.mask_keys)
