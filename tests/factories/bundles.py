"""Bundles of tiny wheels: what they install is a program that says its version."""

from __future__ import annotations

import ensurepip
import shutil
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from zipfile import ZipFile

from deploy.bundle.__main__ import main

VERSION = "0.1.0"
SCRIPT = "import sys\ndef main():\n    print('wardround', '{version}')\n"


def tiny_wheel(
    folder: Path, name: str, version: str, code: str, *metadata: str, others: Mapping[str, str] | None = None
) -> Path:
    """Write a wheel with one package.

    code: of its __init__.py
    metadata: further header lines
    others: further packages, name -> code
    """
    path = folder / f"{name}-{version}-py3-none-any.whl"
    head = "\n".join(["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *metadata])
    members = {
        f"{name}/__init__.py": code,
        **{f"{module}/__init__.py": text for module, text in (others or {}).items()},
        f"{name}-{version}.dist-info/METADATA": head + "\n",
        f"{name}-{version}.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{name}-{version}.dist-info/entry_points.txt": f"[console_scripts]\n{name} = {name}:main\n",
    }
    with ZipFile(path, "w") as archive:
        for member, text in members.items():
            archive.writestr(member, text)
        record = f"{name}-{version}.dist-info/RECORD"
        archive.writestr(record, "".join(f"{member},,\n" for member in [*members, record]))
    return path


def tiny_wheels(folder: Path, *, version: str = VERSION, helper: str = "") -> Path:
    """Write wheels of a program, of the one package that it needs, and of pip. version: the one that it prints."""
    folder.mkdir()
    needs = ("Requires-Dist: wardhelper; extra == 'client'", "Provides-Extra: client")
    tiny_wheel(folder, "wardround", VERSION, SCRIPT.format(version=version), *needs)
    # As in duckdb's wheel, one package is for an optional use.
    tiny_wheel(folder, "wardhelper", "2.0", helper, others={"wardhelper_adapter": "import a_package_for_other_uses"})
    (pip,) = (Path(ensurepip.__file__).parent / "_bundled").glob("pip-*.whl")
    shutil.copy(pip, folder)
    return folder


def new_key(path: Path) -> Path:
    """Make a key without a passphrase."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "maker", "-f", path], check=True)
    return path


def allow_signer(key: Path, path: Path, options: str = 'namespaces="wardround-bundle" ') -> Path:
    """Write the file that names a maker's key."""
    path.write_text(f"maker@example.org {options}{key.with_suffix('.pub').read_text()}")
    return path


def component_lister(folder: Path) -> Path:
    """Write a stand-in of cyclonedx-py."""
    tool = folder / "list-components"
    tool.write_text('#!/bin/sh\nwhile [ "$1" != --output-file ]; do shift; done\necho "{}" > "$2"\n')
    tool.chmod(0o755)
    return tool


def bundle_options(wheels: Path, output: Path, *options: str) -> list[str]:
    """Return the options for a bundle of these wheels."""
    tool = component_lister(output.parent)
    pages = output.with_name("pages")
    pages.mkdir(exist_ok=True)
    for name in ("index.md", "hospital.md"):
        (pages / name).write_text("# Page\n")
    folders = ("--wheels", wheels, "--output", output, "--documents", pages, "--sbom-tool", tool)
    return [*map(str, folders), "--extras", "client", "--no-image", *options]


def build_bundle(wheels: Path, output: Path, *options: str) -> Path:
    """Make the archive and return its path."""
    assert main(bundle_options(wheels, output, *options)) == 0
    (archive,) = output.glob("*.tar")
    return archive


def unpack(archive: Path, folder: Path) -> Path:
    """Return the folder of the unpacked bundle."""
    with tarfile.open(archive) as content:
        content.extractall(folder, filter="data")
    return folder / archive.stem


def run_installer(bundle: Path, *arguments: str | Path, python: str) -> subprocess.CompletedProcess[str]:
    """Start install.sh of a bundle with a Python."""
    command: Sequence[str | Path] = ["sh", bundle / "install.sh", *arguments]
    environment = {"PATH": "/usr/bin:/bin", "PYTHON": python, "LC_ALL": "C.UTF-8"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
