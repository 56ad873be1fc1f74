"""From one round's result to the words that are masked, and back from the hospital's disk.

Words are made once and kept: thresholds are blinded at random, and a repeated round must send the same ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from accounting.plan.report import DISTANCE_BINS, distance_bin
from client_sdk.errors import LedgerDamaged, TrainingStopped
from client_sdk.guard.log_moments import LogMomentBounds
from client_sdk.protocol.randomness.discrete_gaussian import sampler
from client_sdk.protocol.randomness.source import Purpose, RandomSource, RoundRandomness
from client_sdk.protocol.secure_sum.fixed_point import EncodingError, RingVector
from client_sdk.protocol.secure_sum.layout import METRICS, PAPERS, TERMS, UPDATE, flatten, histogram_name
from client_sdk.protocol.secure_sum.vectors import Values, VectorSpec, encode
from client_sdk.protocol.study.settings import Privacy
from client_sdk.protocol.wire.tensors import TERMS as TERMS_PREFIX
from client_sdk.protocol.wire.tensors import Spec
from client_sdk.training import Contribution

_PREFIX = "words/"


def ring_vectors_of(
    privacy: Privacy,
    model: Spec,
    vectors: Sequence[VectorSpec],
    made: Contribution,
    log_moments: LogMomentBounds | None,
    *,
    records: int,
    randomness: RoundRandomness,
) -> dict[str, RingVector]:
    """The words of every vector of the session.

    randomness  this client's in the round: noise of histograms, and the words that blind thresholds

    Raises:
        TrainingStopped: a value does not fit its vector; nothing is sent.
    """
    words: dict[str, RingVector] = {}
    for place, spec in enumerate(vectors):
        noise = randomness.of(Purpose.CLIENT_HISTOGRAM, step=place)
        values = _values(spec, privacy, model, randomness.round, made, log_moments, records, noise)
        try:
            words[spec.name] = encode(spec, values, randomness.of(Purpose.THRESHOLDS, step=place).read)
        except EncodingError as error:
            raise TrainingStopped(f"vector {spec.name}") from error
    return words


def to_bytes(words: Mapping[str, RingVector], clear: Mapping[str, np.ndarray]) -> bytes:
    """One file: the words, and the update where it travels in the clear."""
    return save({_PREFIX + name: np.asarray(vector) for name, vector in words.items()} | dict(clear))


def from_bytes(data: bytes) -> tuple[dict[str, RingVector], dict[str, np.ndarray]]:
    """Inverse of `to_bytes`.

    Raises:
        LedgerDamaged: the file is not what was written.
    """
    try:
        arrays = load(data)
    except (SafetensorError, ValueError) as error:
        raise LedgerDamaged("the finished vectors of this round are damaged") from error
    words = {name.removeprefix(_PREFIX): array for name, array in arrays.items() if name.startswith(_PREFIX)}
    return words, {name: array for name, array in arrays.items() if not name.startswith(_PREFIX)}


def _values(
    spec: VectorSpec,
    privacy: Privacy,
    model: Spec,
    round: int,
    made: Contribution,
    log_moments: LogMomentBounds | None,
    records: int,
    source: RandomSource,
) -> Values:
    if spec.name == UPDATE:
        return flatten(made.update, model)
    if spec.name == histogram_name(privacy.rules):
        return _histogram(privacy, spec, round, made.client_distance, source)
    if spec.name == METRICS:
        return np.array([float(records)])
    if log_moments is None:
        raise TrainingStopped(f"vector {spec.name}")
    if spec.name == PAPERS:
        return log_moments.paper_costs()
    if spec.name == TERMS:
        reported = log_moments.tensors()
        return np.concatenate([reported[TERMS_PREFIX + "filter"], reported[TERMS_PREFIX + "moments"]])
    raise TrainingStopped(f"vector {spec.name}")


def _histogram(privacy: Privacy, spec: VectorSpec, round: int, distance: float | None, source: RandomSource) -> Values:
    """One count in the bin of this client's distance; under disclosure `noised` with this client's share of noise."""
    top = privacy.clip_norm if privacy.client_clip_norm is None else privacy.client_clip_norm
    counts = np.zeros(DISTANCE_BINS, np.int64)
    noise = privacy.histogram_noise
    if noise is None:
        counts[distance_bin(distance, top)] = 1
        return counts
    if round % noise.every == 0:
        counts[distance_bin(distance, top)] = 1
        share = noise.std / np.sqrt(privacy.histogram_shares)
        counts += sampler(float(np.nextafter(share, np.inf))).sample(DISTANCE_BINS, source)
    # Other rounds publish nothing: zeros without noise.
    return counts.astype(np.float64)
