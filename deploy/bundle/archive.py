"""BundleManifest, signature and archive of a bundle. The same files give the same bytes."""

from __future__ import annotations

import os
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path

from deploy.bundle.installer import MANIFEST, NAMESPACE, SIGNATURE, BundleError, file_digest

# 1 January 2020, in seconds since 1970. Every member of an archive has this time.
_TIMESTAMP = 1_577_836_800


def write_manifest(bundle: Path, facts: Mapping[str, str]) -> None:
    """Write the facts and the SHA-256 of every file. `sha256sum --check MANIFEST` reads it."""
    names = sorted(path.relative_to(bundle).as_posix() for path in bundle.rglob("*") if path.is_file())
    lines = [f"# {name}: {text}" for name, text in facts.items()]
    lines += [f"{file_digest(bundle / name)}  {name}" for name in names]
    (bundle / MANIFEST).write_text("\n".join(lines) + "\n")


def read_key(key: Path) -> str:
    """Return the fingerprint of a key for signatures. Its passphrase is not needed.

    Raises:
        BundleError: ssh-keygen cannot read the key.
    """
    done = _run_ssh_keygen("-l", "-f", str(key))
    if done.returncode:
        raise BundleError(f"{key} is no key that ssh-keygen reads: make one with `ssh-keygen -t ed25519`.")
    return done.stdout.split()[1]


def sign_manifest(bundle: Path, key: Path) -> None:
    """Sign the manifest. ssh-keygen asks for the passphrase if the key has one.

    Raises:
        BundleError: ssh-keygen did not sign.
    """
    done = _run_ssh_keygen("-Y", "sign", "-f", str(key), "-n", NAMESPACE, str(bundle / MANIFEST))
    if done.returncode or not (bundle / SIGNATURE).is_file():
        raise BundleError(f"ssh-keygen did not sign with {key}: check its passphrase, its mode (600), or ssh-agent.")


def _run_ssh_keygen(*options: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(["ssh-keygen", *options], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise BundleError("ssh-keygen is not here: install OpenSSH's client, version 8.2 or newer.") from None


def pack(bundle: Path, output: Path) -> None:
    """Write the folder as a tar archive with members in order, without times and owners of this machine."""
    partial = output.with_name(f"{output.name}.partial")
    try:
        with tarfile.open(partial, "w", format=tarfile.PAX_FORMAT) as archive:
            for path in sorted(path for path in bundle.rglob("*") if path.is_file()):
                name = path.relative_to(bundle).as_posix()
                member = tarfile.TarInfo(f"{output.stem}/{name}")
                member.size, member.mtime = path.stat().st_size, _TIMESTAMP
                member.mode = 0o755 if name == "install.sh" else 0o644
                with path.open("rb") as file:
                    archive.addfile(member, file)
        os.replace(partial, output)
    finally:
        partial.unlink(missing_ok=True)
