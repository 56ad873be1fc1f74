"""An installation as users have it: the wheel in an environment of its own, and nothing of the checkout."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from email.parser import Parser
from importlib.metadata import distribution
from pathlib import Path
from zipfile import ZipFile

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]


def built_wheel(folder: Path, sources: Path = ROOT) -> Path:
    """Built as a release is, without a network."""
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=sources, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


def environment_of(wheel: Path, folder: Path) -> Path:
    """The folder of commands of an environment that holds the wheel; what it needs is read from this one's folder.

    That folder's own .pth files, of which one names the checkout, are not followed.
    """
    packages = _empty_environment(folder)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", str(wheel)], check=True, capture_output=True)
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin"


def environment_of_extra(wheel: Path, folder: Path, extra: str) -> Path:
    """Return the folder of commands of an environment as `pip install 'wardround[extra]'` leaves it.

    It has links to the distributions that the extra needs, and to no others of the running environment. Without an
    extra ("") it has what the wheel needs in any case. The wheel is unpacked beside itself, which is quicker than pip,
    and linked: the environments of all extras share what Python compiles of it.
    """
    packages = _empty_environment(folder)
    unpacked = wheel.parent / "unpacked"
    if not unpacked.exists():
        ZipFile(wheel).extractall(unpacked)
    for entry in unpacked.iterdir():
        (packages / entry.name).symlink_to(entry)
    for name in sorted(distributions_of(wheel, extra)):
        files = distribution(name).files or []
        for entry in {file.parts[0] for file in files} - {"..", "__pycache__"}:
            source = Path(sysconfig.get_path("purelib")) / entry
            if source.exists() and source.suffix != ".pth" and not (packages / entry).exists():
                (packages / entry).symlink_to(source)
    command = folder / "bin" / "wardround"
    command.write_text(f"#!{folder / 'bin' / 'python'}\nfrom wardround.cli.main import main\nmain()\n")
    command.chmod(0o755)
    return folder / "bin"


def _empty_environment(folder: Path) -> Path:
    """Make an environment without pip and return its folder of packages."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    return packages


def distributions_of(wheel: Path, extra: str) -> set[str]:
    """The names of all distributions that the wheel needs with this extra."""
    archive = ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    own = Parser().parsestr(archive.read(name).decode()).get_all("Requires-Dist", [])
    waiting, done = [Requirement(f"wardround[{extra}]" if extra else "wardround")], set[tuple[str, str]]()
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        for part in wanted.extras or {""}:
            if (name, part) not in done:
                done.add((name, part))
                texts = own if name == "wardround" else distribution(name).requires or []
                waiting += _asked_by(texts, part)
    return {name for name, _ in done} - {"wardround"}


def _asked_by(texts: list[str], extra: str) -> Iterator[Requirement]:
    for text in texts:
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield requirement
