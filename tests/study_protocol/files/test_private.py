"""Files of their owner alone: by their mode, and by their access list on Windows."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from study_protocol.files.private import exposure, make_private, make_private_folder, open_private
from tests.harness import windows
from tests.harness.windows.system import System, let_others_in, windows_system

SCRIPTS = Path(windows.__file__).parent / "System32"
PRIVATE = """
import os
from pathlib import Path
from study_protocol.files.private import exposure, make_private, make_private_folder, open_private
top = Path({top!r})
"""


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """A folder that all users may enter and whose access list is inherited."""
    folder = tmp_path / "open"
    folder.mkdir()
    let_others_in(folder)
    return folder


def test_new_folders_and_files_are_their_owner_s_alone(top: Path, system: System) -> None:
    program = """
make_private_folder(top / "home" / "ledgers")
print(exposure(top / "home" / "ledgers"))
for path in (top / "key", top / "home" / "ledgers" / "icu.db"):
    os.close(open_private(path, os.O_WRONLY | os.O_CREAT))
    print(exposure(path))
(top / "plain").touch()
(top / "plain").chmod(0o644)
print(exposure(top / "plain") is None)
make_private(top / "plain")
print(exposure(top / "plain"))
"""
    assert system.output(PRIVATE.format(top=str(top)) + program).split() == [*["None"] * 3, "False", "None"]


def test_a_folder_that_is_there_stays_as_it_is(top: Path, system: System) -> None:
    program = """
make_private_folder(top)
print(exposure(top) is None)
(top / "file").touch()
try:
    make_private_folder(top / "file")
except FileExistsError:
    print("a file")
"""
    assert system.output(PRIVATE.format(top=str(top)) + program) == "False\na file\n"


def test_bytes_are_written_as_they_are(top: Path, system: System) -> None:
    program = """
with os.fdopen(open_private(top / "key", os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
    file.write(bytes([13, 10, 26, 10]))
try:
    open_private(top / "key", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
except FileExistsError:
    print((top / "key").read_bytes().hex())
"""
    assert system.output(PRIVATE.format(top=str(top)) + program) == "0d0a1a0a\n"


def test_another_user_in_an_access_list_is_found_and_the_commands_are_named(top: Path) -> None:
    program = """
make_private_folder(top / "home")
key = top / "home" / "identity.key"
os.close(open_private(key, os.O_WRONLY | os.O_CREAT))
print(exposure(key))
from tests.harness.windows.system import let_others_in
let_others_in(key)
print(exposure(key))
"""
    first, second = windows_system().output(PRIVATE.format(top=str(top)) + program).splitlines()
    key = top / "home" / "identity.key"
    assert first == "None"
    assert second == (
        f'(access list): run icacls "{key}" "/reset", then icacls "{key}" "/inheritance:r" "/grant:r" "*S-1-3-4:F" '
        '"*S-1-5-18:F" "*S-1-5-32-544:F"'
    )


@pytest.mark.posix
@pytest.mark.parametrize(
    ("entries", "private"),
    [
        ("D:PAI(A;;FA;;;OW)(A;;FA;;;SY)(A;;FA;;;BA)", True),
        ("D:AI(A;ID;FA;;;SY)(A;ID;FA;;;BA)(A;ID;FA;;;S-1-5-21-1-2-3-1001)", True),
        ("D:AI(A;OICIIO;FA;;;CO)(A;;FA;;;SY)", True),
        ("D:P(D;;FA;;;WD)(A;;FA;;;OW)", True),
        ("D:AI(A;ID;FA;;;SY)(A;ID;FA;;;S-1-5-21-1-2-3-1002)", False),
        ("D:AI(A;ID;0x1200a9;;;BU)(A;ID;FA;;;OW)", False),
        ("D:AI(A;ID;FA;;;OW)(A;ID;0x1301bf;;;AU)", False),
        ("D:(XA;;FR;;;WD;(a == 1))", False),
        ("D:NO_ACCESS_CONTROL", False),
        ("", False),
    ],
)
def test_lists_in_sddl_are_read(tmp_path: Path, entries: str, private: bool) -> None:
    system = tmp_path / "System32"
    system.mkdir()
    (system / "icacls.exe").write_text(f"#!/bin/sh\nprintf '%s\\r\\n' key '{entries}' | iconv -t UTF-16LE >\"$3\"\n")
    (system / "whoami.exe").write_text((SCRIPTS / "whoami.exe").read_text())
    for path in system.iterdir():
        path.chmod(0o755)
    here = System({**windows_system().variables, "SYSTEMROOT": str(tmp_path)})
    assert here.output(PRIVATE.format(top=str(tmp_path)) + "print(exposure(top) is None)\n") == f"{private}\n"


@pytest.mark.posix
def test_a_disk_without_access_lists_is_named(tmp_path: Path) -> None:
    system = tmp_path / "System32"
    system.mkdir()
    for name in ("icacls", "whoami"):
        (system / f"{name}.exe").write_text('#!/bin/sh\n[ "$2" != /save ] || : >"$3"\n')
        (system / f"{name}.exe").chmod(0o755)
    here = System({**windows_system().variables, "SYSTEMROOT": str(tmp_path)})
    program = """
try:
    make_private(top)
except OSError as error:
    print(error.strerror)
"""
    said = here.output(PRIVATE.format(top=str(tmp_path)) + program)
    assert said == "its access list does not keep other users out: use a disk with NTFS\n"


@pytest.mark.posix
def test_modes_say_who_else_may_use_a_file(tmp_path: Path) -> None:
    key, folder = tmp_path / "key", tmp_path / "home"
    os.close(open_private(key, os.O_WRONLY | os.O_CREAT))
    make_private_folder(folder)
    assert (exposure(key), exposure(folder)) == (None, None)
    key.chmod(0o640)
    folder.chmod(0o755)
    assert exposure(key) == "(mode 640): chmod 600 it"
    assert exposure(folder) == "(mode 755): chmod 700 it"
    assert exposure(key, 0o007) is None
    make_private(key)
    make_private(folder)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (key, folder)] == [0o600, 0o700]


@pytest.mark.posix
def test_the_scripts_of_the_stand_in_fail_as_the_programs_do(tmp_path: Path) -> None:
    icacls = SCRIPTS / "icacls.exe"
    assert subprocess.run([icacls, tmp_path / "none", "/reset"], stdout=subprocess.DEVNULL).returncode
