"""The directories of simulated hospitals. A real hospital has one, and gives HospitalMod its path."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


def home_of(context: Any) -> Path:
    """Return the directory of the node that runs the app."""
    return Path(os.environ["QUICKSTART_HOMES"]) / f"hospital-{context.node_config['partition-id']}"
