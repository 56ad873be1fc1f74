"""Names that a file may have on this system."""

from __future__ import annotations

import os
import re

_DEVICE = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)


def is_device(name: str) -> bool:
    """Return whether a name means a device in every folder of this system, as `nul` on Windows."""
    return os.name == "nt" and _DEVICE.fullmatch(name) is not None
