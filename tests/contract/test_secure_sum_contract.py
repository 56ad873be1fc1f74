"""The published vectors of the secure sum, reproduced by the library and by a second implementation."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from client_sdk.guard.policy import Floors
from client_sdk.secure_sum.session import SecureSumClient
from client_sdk.secure_sum.steps import Party
from server.domain import secure_sum as domain
from server.domain import secure_sum as views
from server.domain import secure_sum_recovery as recovery
from study_protocol.secure_sum import masking, shamir, transcript
from study_protocol.secure_sum import vectors as secure_sum_vectors
from study_protocol.secure_sum.messages import SessionParameters, opened_shares
from study_protocol.study.messages import SignedParameters
from tests.contract import secure_sum_reference as reference
from tests.factories.masked_memory import sum_of
from tests.factories.secure_sum import MemoryStore, plan_of_session

NOW = 50


EXAMPLES = {example.key: example for example in reference.EXAMPLES}


@pytest.fixture(scope="module", params=list(EXAMPLES))
def example(request: pytest.FixtureRequest) -> reference.Example:
    return EXAMPLES[request.param]


@pytest.fixture(scope="module")
def published(example) -> dict[str, Any]:
    return json.loads(reference.FILE.read_text())[example.key]


def test_the_second_implementation_made_the_file(example, published) -> None:
    assert reference.compute(example) == published


def test_the_second_example_is_a_ring() -> None:
    assert all(len(near) == 4 for near in json.loads(reference.FILE.read_text())["ring"]["neighbours"].values())


def test_every_derivation_is_reproduced(published) -> None:
    h1 = bytes.fromhex(published["h1"])
    parameters = SessionParameters.from_bytes(published["parameters"].encode())
    assert transcript.parameters_hash(parameters.to_bytes()).hex() == published["ph"]
    for name, client in published["clients"].items():
        private = {use: bytes.fromhex(value) for use, value in client["private"].items()}
        assert masking.public_key(private["share"]).hex() == client["share_key"]
        holders = len(published["neighbours"][name]) + 1
        secrets = (private["seed"], private["mask"])
        shares = shamir.split(secrets, holders, parameters.threshold, private["coefficients"])
        assert [share.hex() for share in shares] == client["shares"]
        sharing, pairing = (masking.KeyAgreement(name, private[use], h1) for use in ("share", "mask"))
        for peer, key in client["pair_share_keys"].items():
            assert sharing.share_key(peer, bytes.fromhex(published["clients"][peer]["share_key"])).hex() == key
        for peer, keys in client["pair_mask_keys"].items():
            public = bytes.fromhex(published["clients"][peer]["mask_key"])
            assert {vector: pairing.mask_key(peer, public, vector).hex() for vector in keys} == keys
        for vector in ("update", "terms"):
            assert masking.self_mask_key(private["seed"], h1, vector).hex() == client["self_mask_keys"][vector]
            assert transcript.canary_word(h1, name, vector).hex() == client["canaries"][vector]


class Given:
    """The randomness of the published session, in the order in which a client asks for it."""

    def __init__(self, private: dict[str, str]) -> None:
        self._queue = [bytes.fromhex(private[use]) for use in ("share", "mask", "seed", "coefficients")]

    def __call__(self, size: int) -> bytes:
        assert size == 32
        return self._queue.pop(0)


def clients_of(published: dict[str, Any], coordinator: Ed25519PrivateKey) -> dict[str, SecureSumClient]:
    identities = {
        name: Ed25519PrivateKey.from_private_bytes(bytes.fromhex(client["private"]["identity"]))
        for name, client in published["clients"].items()
    }
    roster = {name: key.public_key() for name, key in identities.items()}
    floors = Floors(colluders=0, min_survivors=3, allow_three=False)
    return {
        name: SecureSumClient(
            Party(name, key, coordinator.public_key(), roster, "0a" * 32, floors),
            "example",
            1,
            MemoryStore(),
            Given(published["clients"][name]["private"]),
        )
        for name, key in identities.items()
    }


def test_the_whole_session_is_reproduced_message_by_message(published) -> None:
    coordinator = Ed25519PrivateKey.from_private_bytes(bytes(32))
    clients = clients_of(published, coordinator)
    raw = published["parameters"].encode()
    parameters = SessionParameters.from_bytes(raw)
    statement = bytes.fromhex(published["parameters_statement"])
    signed = SignedParameters(parameters=raw, signature=coordinator.sign(statement))
    expected = plan_of_session(
        parameters.vectors,
        parameters.colluders,
        neighbours=parameters.neighbours,
        study="example",
        round=1,
        roster="0a" * 32,
        query=parameters.query,
        model=parameters.model,
        settings="0c" * 32,
        ledger=(7, "0d" * 32),
        start=0,
        deadlines=parameters.deadlines,
        expires=parameters.expires,
    )
    roster = {name: client._party.identity.public_key() for name, client in clients.items()}
    session = domain.Session(parameters, roster)

    for name, client in clients.items():
        keys = client.advertise(signed, expected, NOW)
        assert keys.signature.hex() == published["clients"][name]["keys_signature"]
        session = domain.admit_keys(session, keys)
    session = domain.advance(session, NOW)
    assert session.h1.hex() == published["h1"]
    assert {name: list(session.graph.neighbours(name)) for name in clients} == published["neighbours"]

    for name, client in clients.items():
        shares = client.share(views.key_list(session), NOW)
        assert shares.slots.hex() == published["clients"][name]["slots"]
        assert shares.commitment.hex() == published["clients"][name]["commitment"]
        session = domain.admit_shares(session, shares)
    session = domain.advance(session, NOW)

    vectors: dict[str, dict[str, np.ndarray]] = {}
    for name, after in published["survivors"].items():
        values = published["clients"][name]["words"]
        words = {spec.name: np.array(values[spec.name], spec.dtype) for spec in parameters.vectors}
        upload = clients[name].mask(views.inbox(session, name), words, NOW)
        vectors[name] = dict(upload.vectors)
        assert {v: w.tobytes().hex() for v, w in upload.vectors.items()} == after["masked"]
        assert upload.manifest.signature.hex() == after["masked_signature"]
        session = domain.admit_manifest(session, upload.manifest)
    session = domain.advance(session, parameters.deadlines.masked)
    assert session.survivors_hash.hex() == published["survivors_hash"]

    for name, after in published["survivors"].items():
        message = clients[name].confirm(views.survivor_list(session), NOW)
        assert message.signature.hex() == after["consistency_signature"]
        session = domain.admit_consistency(session, message)
    session = domain.advance(session, NOW)
    for name, after in published["survivors"].items():
        opened = clients[name].unmask(views.consistency_list(session), NOW)
        shares = opened_shares(session.peers(name), session.survivor_set, opened.shares)
        assert [[peer, kind, share.hex()] for peer, kind, share in shares] == after["opened"]
        assert opened.signature.hex() == after["unmask_signature"]
        session = domain.admit_unmask(session, opened)

    recovered = recovery.recover(session)
    for spec in parameters.vectors:
        total = sum_of(session, recovered, spec, [vectors[name][spec.name] for name in session.survivors])
        assert total.tobytes().hex() == published["sums"][spec.name]
    digests = {v: hashlib.sha256(bytes.fromhex(octets)).digest() for v, octets in published["sums"].items()}
    _, result = recovery.summed(session, digests, coordinator.sign)
    assert transcript.is_signed(
        coordinator.public_key(), result.signature, bytes.fromhex(published["result_statement"])
    )


def test_the_sums_decode_to_what_the_survivors_sent(example, published) -> None:
    parameters = SessionParameters.from_bytes(published["parameters"].encode())
    log_moments = parameters.vector("terms")
    total = np.frombuffer(bytes.fromhex(published["sums"]["terms"]), log_moments.dtype)
    expected = {
        "complete": [1 + 2**40 + 5, 2 + 3 + 2**50],
        "ring": [1 + 2**40 + 5 + 7, 2 + 3 + 2**50 + 303],
        "asked": [2**40 + 5 + 7, 3 + 2**50 + 9],
    }
    assert secure_sum_vectors.decode(log_moments, total).tolist() == expected[example.key]
    update = parameters.vector("update")
    total = np.frombuffer(bytes.fromhex(published["sums"]["update"]), update.dtype)
    expected = {"complete": [-4, 11, 9], "ring": [-10, 41, 12], "asked": [-4, 14, 7]}
    assert (secure_sum_vectors.decode(update, total) * 2**20).tolist() == expected[example.key]
