"""One vector's sum, written as it is made. No part of it is kept before its canary says that every mask cancelled."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from server.db.blobs import IncomingFile, OpenedFile
from server.domain.secure_sum import Declined, Session
from server.domain.secure_sum_recovery import MaskKeys
from server.domain.secure_sum_total import ReadWords, unmasked
from study_protocol.secure_sum.vectors import RingVector, VectorSpec, canary_sum
from study_protocol.wire.tensor_files import read_at


def write_sum(
    incoming: IncomingFile,
    session: Session,
    spec: VectorSpec,
    vectors: Sequence[tuple[OpenedFile, int]],
    keys: MaskKeys,
    renew_lease: Callable[[], None],
) -> Declined | None:
    """Write the unmasked sum of one vector, its canary's words last.

    vectors  each survivor's file, and the byte at which the vector begins in it

    On a mismatch what was written is worthless: the caller does not keep it.

    Raises:
        TensorError: a file is shorter than the vector.
    """
    last = np.empty(0, spec.dtype)
    for piece in unmasked(spec, [_reader(*vector, spec) for vector in vectors], keys):
        incoming.write(piece.data.cast("B"))
        last = piece
        # A long vector of many clients takes longer to add than a lease lasts.
        renew_lease()
    if not np.array_equal(last, canary_sum(spec, session.h1, session.survivors)):
        return Declined("canary-mismatch", f"the masks on vector {spec.name} did not cancel: its sum is discarded")
    return None


def _reader(file: OpenedFile, offset: int, spec: VectorSpec) -> ReadWords:
    def fill(start: int, room: RingVector) -> None:
        read_at(file.descriptor, room, offset + start * spec.dtype.itemsize)

    return fill
