"""An installation as users have it: the wheel in an environment of its own, and nothing of the checkout."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

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
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", str(wheel)], check=True, capture_output=True)
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin"
