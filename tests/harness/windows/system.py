"""Programs of the hospital's packages in processes of their own, on this system or on the stand-in for Windows."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.harness import windows

# In front of a program, so that its own statements are of a package of the hospital.
_OURS = "__package__ = 'client_sdk'\n"


@dataclass(frozen=True)
class System:
    """A system that programs run on.

    Attributes:
        variables: of the environment, beside those of this process.
    """

    variables: Mapping[str, str] = field(default_factory=dict)

    def start(self, program: str) -> subprocess.Popen[str]:
        """Start a program whose input and output are pipes."""
        command, environment = self._command(program)
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def output(self, program: str, given: str = "") -> str:
        """Return what a program prints that is given a text. It must succeed."""
        command, environment = self._command(program)
        return subprocess.run(
            command, input=given, stdout=subprocess.PIPE, text=True, env=environment, check=True
        ).stdout

    def _command(self, program: str) -> tuple[list[str], dict[str, str]]:
        return [sys.executable, "-c", _OURS + program], {**os.environ, **self.variables}


def windows_system() -> System:
    """Return Windows: this system, or the stand-in for it."""
    if os.name == "nt" or windows.is_played:
        return System()
    from tests.harness.windows import stand_in

    return System(stand_in.environment())


def let_others_in(path: Path) -> None:
    """Let all users of this machine read a file or a folder with all that is made in it."""
    if os.name == "nt" or windows.is_played:
        icacls = Path(os.environ["SYSTEMROOT"], "System32", "icacls.exe")
        rights = "(OI)(CI)R" if path.is_dir() else "R"
        subprocess.run([icacls, path, "/grant", f"*S-1-5-32-545:{rights}"], stdout=subprocess.DEVNULL, check=True)
    else:
        # The stand-in takes a mode that lets all users write as such an access list.
        path.chmod(path.stat().st_mode | 0o066)
