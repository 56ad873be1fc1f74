"""Limits against files that unpack into far more than their size."""

from __future__ import annotations

from study_protocol.cells.errors import DataError

# Public limits. A file is refused if it unpacks into more than this size and more than this ratio.
MAX_UNPACKED = 1 << 30
MAX_RATIO = 200


class TooLarge(DataError):
    """A file would unpack into more than is safe."""


def require_safe(name: str, packed: int, unpacked: int) -> None:
    """Require a safe size. Raises TooLarge: the file would take more than 1 GiB and 200 times its packed size."""
    if unpacked > MAX_UNPACKED and unpacked > MAX_RATIO * packed:
        raise TooLarge(
            f"{name}: unpacked it would take {_size(unpacked)}, more than {_size(MAX_UNPACKED)} and more than "
            f"{MAX_RATIO} times its packed size. Unpack it yourself if that is right"
        )


def _size(count: int) -> str:
    return f"{count / (1 << 30):,.1f} GiB"
