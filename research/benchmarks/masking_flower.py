"""Flower's secure-aggregation primitives behind the same requests as `research.benchmarks.masking`.

Runs in an environment of its own, with flwr installed, as `PYTHON research/benchmarks/masking_flower.py`: one JSON
request per line on standard input, one JSON answer per line on standard output. The calls follow SecAgg+ of Flower
1.41.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from importlib.metadata import version

import numpy as np
from flwr.common import ndarray_to_bytes
from flwr.common.secure_aggregation.crypto.shamir import combine_shares, create_shares
from flwr.common.secure_aggregation.crypto.symmetric_encryption import decrypt, encrypt, generate_shared_key
from flwr.common.secure_aggregation.ndarrays_arithmetic import (
    parameters_addition,
    parameters_mod,
    parameters_subtraction,
)
from flwr.common.secure_aggregation.secaggplus_utils import (
    pseudo_rand_gen,
    share_keys_plaintext_concat,
    share_keys_plaintext_separate,
)
from flwr.supercore.primitives.asymmetric import (
    bytes_to_private_key,
    bytes_to_public_key,
    generate_key_pairs,
    private_key_to_bytes,
    public_key_to_bytes,
)

RING = 1 << 32


class FlowerStopwatch:
    """Wall and processor seconds of a `with` block."""

    def __enter__(self) -> FlowerStopwatch:
        self._start = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall, self.cpu = time.perf_counter() - self._start[0], time.process_time() - self._start[1]

    def per(self, repeats: int) -> dict[str, float]:
        return {"seconds": self.wall / repeats, "cpu_seconds": self.cpu / repeats}


def mask(values: int, neighbours: int) -> dict[str, float]:
    """The client's masking stage, keys given: its own mask, half of the pairs added, half subtracted."""
    vector = [np.arange(values, dtype=np.int64) % 1000]
    keys = [os.urandom(32) for _ in range(neighbours)]
    seed = os.urandom(32)
    with FlowerStopwatch() as watch:
        masked = _masked(vector, seed, keys[: neighbours // 2], keys[neighbours // 2 :])
        body = ndarray_to_bytes(masked[0])
    return {**watch.per(1), "octets": len(body)}


def _masked(vector, seed, added, subtracted):
    shapes = [array.shape for array in vector]
    vector = parameters_addition(vector, pseudo_rand_gen(seed, RING, shapes))
    for key in added:
        vector = parameters_addition(vector, pseudo_rand_gen(key, RING, shapes))
    for key in subtracted:
        vector = parameters_subtraction(vector, pseudo_rand_gen(key, RING, shapes))
    return parameters_mod(vector, RING)


def share(holders: int, threshold: int, repeats: int) -> dict[str, float]:
    secrets = [os.urandom(32) for _ in range(repeats)]
    with FlowerStopwatch() as watch:
        for secret in secrets:
            create_shares(secret, threshold, holders)
    return watch.per(repeats)


def combine(holders: int, threshold: int, repeats: int) -> dict[str, float]:
    secrets = [os.urandom(32) for _ in range(repeats)]
    shares = [create_shares(secret, threshold, holders)[:threshold] for secret in secrets]
    with FlowerStopwatch() as watch:
        combined = [combine_shares(some) for some in shares]
    if combined != secrets:
        raise RuntimeError("shares did not combine")
    return watch.per(repeats)


def everybody(clients: int, threshold: int, values: int) -> dict[str, float]:
    """Keys, shares, masks and unmasking of all parties, nobody lost, no transport."""
    plain = [np.arange(values, dtype=np.int64) % 1000 + index for index in range(clients)]
    with FlowerStopwatch() as watch:
        total = _session(plain, threshold)
    if not np.array_equal(total, sum(plain)):
        raise RuntimeError("the masks did not cancel")
    return watch.per(1)


def _session(plain, threshold):
    clients, shape = len(plain), plain[0].shape
    pairs = [(generate_key_pairs(), generate_key_pairs()) for _ in range(clients)]
    private = [tuple(private_key_to_bytes(pair[0]) for pair in key_pairs) for key_pairs in pairs]
    public = [tuple(public_key_to_bytes(pair[1]) for pair in key_pairs) for key_pairs in pairs]
    seeds = [os.urandom(32) for _ in range(clients)]
    received_shares = _exchange_shares(private, public, seeds, threshold)
    total = [np.zeros(shape, dtype=np.int64)]
    for me in range(clients):
        private_key = bytes_to_private_key(private[me][0])
        keys = {
            p: generate_shared_key(private_key, bytes_to_public_key(public[p][0])) for p in range(clients) if p != me
        }
        added, subtracted = [keys[p] for p in keys if me > p], [keys[p] for p in keys if me < p]
        total = parameters_addition(total, _masked([plain[me]], seeds[me], added, subtracted))
    total = parameters_mod(total, RING)
    for me in range(clients):
        seed = combine_shares([received_shares[peer][me] for peer in range(threshold)])
        total = parameters_subtraction(total, pseudo_rand_gen(seed, RING, [shape]))
    return parameters_mod(total, RING)[0]


def _exchange_shares(private, public, seeds, threshold):
    """For each client the seed shares that it holds, by owner."""
    clients = len(seeds)
    received_shares = [{} for _ in range(clients)]
    for me in range(clients):
        seed_shares = create_shares(seeds[me], threshold, clients)
        key_shares = create_shares(private[me][0], threshold, clients)
        for peer in range(clients):
            if peer == me:
                received_shares[me][me] = seed_shares[me]
                continue
            key = generate_shared_key(bytes_to_private_key(private[me][1]), bytes_to_public_key(public[peer][1]))
            sealed = encrypt(key, share_keys_plaintext_concat(me, peer, seed_shares[peer], key_shares[peer]))
            received_shares[peer][me] = share_keys_plaintext_separate(decrypt(key, sealed))[2]
    return received_shares


TASKS: dict[str, Callable[..., dict[str, float]]] = {
    "mask": mask,
    "share": share,
    "combine": combine,
    "everybody": everybody,
}


def main() -> None:
    print(json.dumps({"flwr": version("flwr"), "numpy": np.__version__, "python": sys.version.split()[0]}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        answer = TASKS[request.pop("task")](**request)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(json.dumps({**answer, "peak_mib": peak}), flush=True)


if __name__ == "__main__":
    main()
