"""The version before this one, as its users have it: the wheel of its commit in an environment of its own."""

from __future__ import annotations

import io
import subprocess
import tarfile
import tomllib
from pathlib import Path

from tests.factories.installation import ROOT, built_wheel, environment_of
from wardround.demo.live import LiveCoordinator

NAMED = Path(__file__).with_name("previous.toml")
# Of no checkout, whatever PYTHONPATH says.
_MAIN = "from client_sdk.main import main; main()"


class PreviousMissing(Exception):
    """This checkout does not hold the version before."""


class PreviousCoordinator(LiveCoordinator):
    """A coordinator of that version, whose command for keys has another name and whose roles are two."""

    def _make_key(self, role: str, path: Path) -> None:
        role = "operator" if role == "administrator" else role
        arguments = ["operator", "init", "--role", role, "--label", "demonstration", "--key-file", str(path)]
        self.processes.run(
            "wardround operator init", arguments, env=self.environment(), log=self.log, command=self.command
        )


def named() -> str:
    """The tag of the version before or, where it has none, its commit."""
    values = tomllib.loads(NAMED.read_text())
    return str(values["tag"] or values["commit"])


def installed(revision: str, folder: Path) -> tuple[str, ...]:
    """The command `wardround` of that revision, with the packages of this environment.

    Raises:
        PreviousMissing: there is no such revision here.
    """
    sources = folder / "sources"
    sources.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(_archive(revision))) as archive:
        archive.extractall(sources, filter="data")
    wheel = built_wheel(folder / "wheel", sources)
    return str(environment_of(wheel, folder / "environment") / "python"), "-I", "-c", _MAIN


def _archive(revision: str) -> bytes:
    found = subprocess.run(["git", "archive", "--format=tar", revision], cwd=ROOT, capture_output=True)
    if found.returncode:
        raise PreviousMissing(
            f"the version before this one ({revision}, named in {NAMED.relative_to(ROOT)}) is not in this checkout: "
            "fetch the history and its tags (git fetch --unshallow --tags), or clone the repository anew"
        )
    return found.stdout
