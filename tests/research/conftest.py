"""Experiments make loggers quieter for their whole process; tests give them their levels back."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

LOGGERS = ("study_protocol", "study_protocol.randomness.source", "private_learning", "client_sdk")


@pytest.fixture(autouse=True)
def _levels() -> Iterator[None]:
    before = {name: logging.getLogger(name).level for name in LOGGERS}
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)
