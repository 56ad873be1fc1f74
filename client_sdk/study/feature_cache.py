"""Features of a hospital's records on its own disk, encrypted: computed once, read in later runs.

A file holds the features of one data set under one study's public part (task, parameters, backbone). Each piece is
sealed with AES-256-GCM under a key in the hospital's own folder, and bound to what was computed of which records: a
file of other records, another backbone, another hospital or a damaged one is not believed, and the features are
computed anew. The key lies beside the files: it protects copies of the files alone, such as a backup without the key.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from torch import Tensor

from client_sdk.errors import KeyFileError
from private_learning.tasks import TaskDataset
from private_learning.tasks.inputs import in_memory
from private_learning.training.features import Features, in_chunks
from study_protocol.files.durable import replacing, write_durably
from study_protocol.files.private import exposure, make_private_folder
from study_protocol.study.training import Training
from study_protocol.wire.signing import canonical_json

FOLDER, KEY = "features", "key"
_MAGIC = b"wardround features 1\n"
_PIECE = 8 << 20
_NONCE, _TAG = 12, 16

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class FeatureCache:
    """The folder of one hospital's features.

    folder  within the hospital's own directory. Made with mode 0700, its files with 0600
    """

    folder: Path

    def features(self, transform: Features, dataset: TaskDataset, training: Training) -> TaskDataset:
        """`made.of_dataset(dataset)`, out of the file where there is one of exactly these records.

        Raises:
            NoFeatures: the model cannot be cut before its head.
            KeyFileError: others may read the key, or it is damaged.
        """
        part = _of_part(training)
        path, bound = self.folder / f"{part.hex()[:32]}.sealed", _bound(part, dataset)
        try:
            key = self._key()
        except OSError as error:
            _not_kept(error)
            return transform.of_dataset(dataset)
        cached = _read(path, key, bound) if path.exists() else None
        if cached is not None and len(cached) == len(dataset) and _still_made(transform, dataset, cached):
            return TaskDataset(cached, dataset.targets, dataset.patients, dataset.grouped, computed=True)
        if path.exists():
            _LOG.warning("the stored features are not of these records under this study, or are damaged: computed anew")
        computed = transform.of_dataset(dataset)
        try:
            _write(path, key, bound, in_memory(computed.inputs))
        except OSError as error:
            _not_kept(error)
        return computed

    def _key(self) -> bytes:
        """32 bytes, made where there are none yet."""
        make_private_folder(self.folder)
        path = self.folder / KEY
        if not path.exists():
            # Features under a key that is gone cannot be read by anybody: they are replaced.
            write_durably(path, secrets.token_bytes(32))
        if exposure(path) is not None:
            raise KeyFileError(f"{path} may be read by others: delete the folder {self.folder}, it is made anew")
        key = path.read_bytes()
        if len(key) != 32:
            raise KeyFileError(f"{path} is damaged: delete the folder {self.folder}, it is made anew")
        return key


def _still_made(transform: Features, dataset: TaskDataset, cached: Tensor) -> bool:
    """Whether the first record's features are made as they were: code that is installed anew has the same name."""
    first = TaskDataset(dataset.inputs[:1], dataset.targets[:1], dataset.patients[:1], dataset.grouped)
    recomputed = in_memory(transform.of_dataset(first).inputs)
    return recomputed.shape == cached[:1].shape and torch.allclose(
        recomputed, cached[:1], rtol=1e-3, atol=1e-5, equal_nan=True
    )


def _not_kept(error: OSError) -> None:
    _LOG.warning("the features are not stored for later runs: %s", error.strerror or type(error).__name__)


def _of_part(training: Training) -> bytes:
    """Digest of all that decides what is computed of a record, beside the record."""
    identity = training.model_dump(mode="json", include={"task", "task_parameters", "trainable", "backbone"})
    # Another version may round otherwise.
    return hashlib.sha256(canonical_json([identity, torch.__version__])).digest()


def _bound(part: bytes, dataset: TaskDataset) -> bytes:
    """Digest of what is computed of which records, as they are after preprocessing and in their order."""
    digest = hashlib.sha256(part)
    digest.update(json.dumps([list(dataset.inputs.shape), str(dataset.inputs.dtype), dataset.patients]).encode())
    for chunk in in_chunks(dataset.inputs):
        digest.update(np.ascontiguousarray(chunk.numpy()).data)
    return digest.digest()


def _write(path: Path, key: bytes, bound: bytes, features: Tensor) -> None:
    """Piece by piece, whole or not at all."""
    flat = np.ascontiguousarray(features.numpy(), "<f4").reshape(-1).view(np.uint8).data
    header = json.dumps({"shape": list(features.shape)}).encode()
    sealing = AESGCM(key)
    with replacing(path) as file:
        file.write(_MAGIC + len(header).to_bytes(4, "big") + header)
        for number, start in enumerate(range(0, len(flat), _PIECE)):
            piece = bytes(flat[start : start + _PIECE])
            # Random: under one key far fewer than 2³² pieces are ever sealed (NIST SP 800-38D, 8.3). Of the piece too,
            # so that random bytes that repeat do not seal two pieces under one nonce.
            nonce_seed = secrets.token_bytes(32) + hashlib.sha256(piece + _about(bound, header, number)).digest()
            nonce = hmac.digest(key, nonce_seed, "sha256")[:_NONCE]
            file.write(nonce + sealing.encrypt(nonce, piece, _about(bound, header, number)))


def _read(path: Path, key: bytes, bound: bytes) -> Tensor | None:
    """Return the features, or None where the file is of something else, or damaged."""
    try:
        with path.open("rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                return None
            header = file.read(min(int.from_bytes(file.read(4), "big"), 4096))
            shape = _shape(json.loads(header))
            size = 4 * int(np.prod(shape, dtype=object))
            # Before memory is taken for it.
            pieces = -(-size // _PIECE)
            if os.fstat(file.fileno()).st_size - file.tell() != size + pieces * (_NONCE + _TAG):
                return None
            flat = np.empty(size, np.uint8)
            for number, start in enumerate(range(0, size, _PIECE)):
                nonce = file.read(_NONCE)
                sealed = file.read(min(_PIECE, size - start) + _TAG)
                opened = AESGCM(key).decrypt(nonce, sealed, _about(bound, header, number))
                flat[start : start + len(opened)] = np.frombuffer(opened, np.uint8)
    except (OSError, ValueError, InvalidTag):
        return None
    return torch.as_tensor(flat.view("<f4").astype(np.float32, copy=False).reshape(shape))


def _shape(value: Any) -> tuple[int, ...]:
    """Raises ValueError: not the header of such a file."""
    shape: Any = cast("dict[str, Any]", value).get("shape") if isinstance(value, dict) else None
    dimensions = tuple(cast("list[Any]", shape)) if isinstance(shape, list) else ()
    if not dimensions or not all(type(dimension) is int and dimension > 0 for dimension in dimensions):
        raise ValueError("no shape")
    return dimensions


def _about(bound: bytes, header: bytes, number: int) -> bytes:
    """Return the binding of a piece: the records and what is computed of them, the shape, and its place in the file."""
    return bound + hashlib.sha256(header).digest() + number.to_bytes(8, "big")
