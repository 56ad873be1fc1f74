"""Collect what a bundle holds: wheels with a lock file, the list of components, documents and the image."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile

from deploy.bundle.installer import LOCK, BundleError, clean_environment, file_digest, pip_command

ROOT = Path(__file__).parents[2]
BUILDERS = ("docker", "podman", "buildah")
# An empty environment, its pip apart.
_ENVIRONMENT_BYTES = 5_000_000
_LOCKED = re.compile(r"^(\S+)==(\S+) \\\n((?:[ ]+--hash=sha256:[0-9a-f]{64}(?: \\)?\n?)+)", re.M)


class Wheel(NamedTuple):
    """A wheel, as its file name describes it (binary distribution format of PyPA)."""

    path: Path
    name: str
    version: str
    platform: str


def read_wheel_name(path: Path) -> Wheel:
    """Return the parts of a wheel's file name, with the name in canonical form."""
    name, version, *_, platform = path.stem.split("-")
    return Wheel(path, re.sub(r"[-_.]+", "-", name).lower(), version, platform)


def parse_extras(text: str) -> list[str]:
    """Return the names of a list with commas, sorted.

    Raises:
        BundleError: pyproject.toml has no extra of such a name.
    """
    declared_extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    extras = sorted({name.strip() for name in text.split(",") if name.strip()})
    if unknown := sorted(set(extras) - set(declared_extras)):
        raise BundleError(f"There is no extra {unknown[0]!r}: choose from {', '.join(declared_extras)}.")
    return extras


def build_wheels(extras: Sequence[str], folder: Path) -> None:
    """Build the wheel of this checkout, and fetch those of its requirements and of pip from pip's index.

    Raises:
        BundleError: pip failed.
    """
    project = f"{ROOT}[{','.join(extras)}]" if extras else str(ROOT)
    constraint = ["--constraint", str(ROOT / "constraints.txt")]
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", *constraint, "--wheel-dir", str(folder), project, "pip"]
    if subprocess.run(command, cwd=ROOT, check=False).returncode:
        raise BundleError("pip could not get all wheels, as it says above: correct its index, or constraints.txt.")


def read_wheels(folder: Path) -> list[Wheel]:
    """Return the wheels of a folder, sorted by name.

    Raises:
        BundleError: a wheel of Wardround or pip is missing, a package has two wheels, a hash is not the one of
            deploy/locks, or torch is a build for GPUs.
    """
    wheels = sorted(read_wheel_name(path) for path in folder.glob("*.whl"))
    names = [wheel.name for wheel in wheels]
    for name in ("wardround", "pip"):
        if name not in names:
            raise BundleError(f"{folder} has no wheel of {name}: add it.")
    if twice := [name for name in names if names.count(name) > 1]:
        raise BundleError(f"{folder} has {names.count(twice[0])} wheels of {twice[0]}: leave one.")
    locked = _locked_hashes()
    for wheel in wheels:
        key = (wheel.name, wheel.version)
        if key in locked and file_digest(wheel.path) not in locked[key]:
            raise BundleError(f"{wheel.path.name} has another hash than deploy/locks: ask who runs pip's index.")
        if wheel.name == "torch" and "linux" in wheel.platform and not wheel.version.endswith("+cpu"):
            raise BundleError(
                "pip's index has torch for GPUs: set PIP_EXTRA_INDEX_URL to the index of its CPU builds "
                "(docs/offline.md)."
            )
    return wheels


def _locked_hashes() -> dict[tuple[str, str], set[str]]:
    """Name and version -> the SHA-256 digests that a lock file of the images lists."""
    locked = dict[tuple[str, str], set[str]]()
    for path in (ROOT / "deploy" / "locks").glob("*.txt"):
        for name, version, hashes in _LOCKED.findall(path.read_text()):
            locked.setdefault((name, version), set()).update(re.findall(r"[0-9a-f]{64}", hashes))
    return locked


def write_lock(wheels: Iterable[Wheel], extras: Sequence[str], bundle: Path) -> None:
    """Write the lock file of a bundle: a line for each wheel, with its hash."""
    lines = list[str]()
    for wheel in wheels:
        brackets = f"[{','.join(extras)}]" if wheel.name == "wardround" and extras else ""
        lines.append(f"{wheel.name}{brackets}=={wheel.version} --hash=sha256:{file_digest(wheel.path)}\n")
    (bundle / LOCK).write_text("".join(lines))


def verify_lock(bundle: Path) -> None:
    """Verify with a dry run of the bundle's pip that its wheels are complete.

    Raises:
        BundleError: a requirement has no wheel.
    """
    command = [*pip_command(Path(sys.executable), bundle), "--dry-run", "--ignore-installed"]
    done = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise BundleError(f"The wheels do not install together: {done.stderr.strip().splitlines()[-1]}")


def installed_bytes(wheels: Iterable[Wheel]) -> int:
    """Return an upper bound of the space of an installation: all files, and once more the sources as byte code."""
    total = _ENVIRONMENT_BYTES
    for wheel in wheels:
        with ZipFile(wheel.path) as archive:
            for member in archive.infolist():
                # Files take whole blocks.
                size = member.file_size + 4096
                total += 2 * size if member.filename.endswith(".py") else size
    return total


def needed_glibc(wheels: Iterable[Wheel]) -> str | None:
    """Return the newest C library that a wheel needs at least, by its manylinux tags. None where no wheel has one."""
    # A wheel with several tags runs where the oldest of them does.
    older = {"manylinux2014": (2, 17), "manylinux2010": (2, 12), "manylinux1": (2, 5)}
    needs = list[tuple[int, int]]()
    for wheel in wheels:
        tags = [(int(major), int(minor)) for major, minor in re.findall(r"manylinux_(\d+)_(\d+)_", wheel.platform)]
        tags += [version for name, version in older.items() if f"{name}_" in wheel.platform]
        needs += [min(tags)] if tags else []
    return ".".join(map(str, max(needs))) if needs else None


def write_components(tool: Path, bundle: Path) -> None:
    """Write the components of the lock file as CycloneDX, with their hashes.

    Raises:
        BundleError: cyclonedx-py is missing or fails.
    """
    options = ["--pyproject", str(ROOT / "pyproject.toml"), "--output-reproducible"]
    command = [str(tool), "requirements", str(bundle / LOCK), *options, "--output-file", str(bundle / "sbom.cdx.json")]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise BundleError(f"{tool} is missing: run `make bundle`, which installs it.") from None
    if done.returncode:
        raise BundleError(f"cyclonedx-py failed: {done.stderr.strip().splitlines()[-1]}")


def copy_documents(source: Path, bundle: Path) -> str:
    """Copy a built site, or else the Markdown pages with those of the root, and return which it was.

    Raises:
        BundleError: the folder has neither.
    """
    target = bundle / "documents"
    if (source / "index.html").is_file():
        shutil.copytree(source, target)
        return "HTML"
    if not (source / "index.md").is_file():
        raise BundleError(f"{source} has no index.html and no index.md: name `docs` or a built site.")
    shutil.copytree(source, target / "docs", ignore=shutil.ignore_patterns("__pycache__"))
    for page in ROOT.glob("*.md"):
        shutil.copy(page, target)
    return "Markdown"


def find_builder() -> str | None:
    """Return the first program here that can build an image."""
    for name in BUILDERS:
        if shutil.which(name) and subprocess.run([name, "info"], capture_output=True, check=False).returncode == 0:
            return name
    return None


def save_images(builder: str, extras: Sequence[str], version: str, bundle: Path) -> list[str]:
    """Build the images of the chosen extras and save them as `docker load` reads them. Return their paths.

    Raises:
        BundleError: the builder failed.
    """
    (bundle / "image").mkdir()
    paths = list[str]()
    for name in sorted({"server" if extra in {"server", "objects", "traces"} else "client" for extra in extras}):
        tag, path = f"wardround-{name}:{version}", f"image/{name}.tar"
        save = [builder, "save", "--output", str(bundle / path), tag]
        if builder == "buildah":
            save = [builder, "push", tag, f"docker-archive:{bundle / path}:{tag}"]
        for command in ([builder, "build", "--target", name, "--tag", tag, str(ROOT)], save):
            if subprocess.run(command, check=False).returncode:
                raise BundleError(f"{builder} failed, as it says above: correct it, or leave images out (--no-image).")
        paths.append(path)
    return paths
