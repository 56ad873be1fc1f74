"""Devices of Windows: what is written to a file of their name is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from client_sdk.guard.ledger_file import ledger_path
from study_protocol.files.names import is_device
from tests.harness.windows.system import windows_system

NAMES = """
from pathlib import Path
from client_sdk.errors import ConfigurationError
from client_sdk.guard.ledger_file import ledger_path
from client_sdk.identity import Identity
from study_protocol.files.names import is_device
print([name for name in ("nul", "Con.parquet", "com1", "aux.db", "null", "com", "icu-con", "com10") if is_device(name)])
for use in (lambda: ledger_path(Path(), "nul"), lambda: Identity(Path(), None).membership("aux")):
    try:
        use()
    except ConfigurationError as error:
        print(error)
"""


def test_names_of_devices_are_refused_on_windows() -> None:
    assert windows_system().output(NAMES).splitlines() == [
        "['nul', 'Con.parquet', 'com1', 'aux.db']",
        "dataset: 'nul' is the name of a device on Windows, where a file of this name keeps nothing: take another name",
        "study 'aux' has the name of a device on Windows, where a file of this name keeps nothing: take part from "
        "another system",
    ]


@pytest.mark.posix
def test_elsewhere_they_are_names_like_others() -> None:
    assert not is_device("nul")
    assert ledger_path(Path("home"), "nul") == Path("home/ledgers/nul.db")
