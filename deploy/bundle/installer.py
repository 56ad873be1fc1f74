"""Verify this bundle and install it into a new folder, without a network.

The archive has this file as install.py, and install.sh starts it. It imports the standard library alone, because it
runs before Wardround is installed.
"""

from __future__ import annotations

import argparse
import errno
import hashlib
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

MANIFEST, SIGNATURE, LOCK, WHEELS = "MANIFEST", "MANIFEST.sig", "requirements.lock", "wheels"
# A signature that its key made for another purpose is no signature of a bundle.
NAMESPACE = "wardround-bundle"
UNSIGNED = "NONE. THIS BUNDLE IS NOT SIGNED, AND ANYONE CAN HAVE CHANGED IT."
FORMAT = "1"

_LINE = re.compile(r"# (?P<name>[a-z-]+): (?P<text>.+)|#.*|(?P<digest>[0-9a-f]{64})  (?P<path>.+)")
_FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")
# Imports Wardround's packages and each of its direct requirements that is installed: the module of its name, because
# others may be for optional uses, or else all of its modules.
_SELF_CHECK = r"""
import importlib, re
from importlib.metadata import packages_distributions, requires
def canonical(name): return re.sub("[-_.]+", "-", name).lower()
modules = {}
for module, owners in packages_distributions().items():
    if module.isidentifier() and not module.startswith("_"):
        for owner in owners:
            modules.setdefault(canonical(owner), set()).add(module)
wanted = {canonical(re.match(r"[\w.-]+", text)[0]) for text in requires("wardround")}
for name in sorted(wanted & modules.keys()):
    for module in {m for m in modules[name] if canonical(m) == name} or modules[name]:
        importlib.import_module(module)
for module in modules["wardround"]:
    importlib.import_module(module)
"""


class BundleError(Exception):
    """One sentence about what is wrong and what to change."""


@dataclass(frozen=True)
class BundleManifest:
    """The statements of a bundle about itself.

    facts: name -> text, such as python -> 3.11
    digests: path below the bundle's folder -> SHA-256 in hexadecimal digits
    """

    facts: Mapping[str, str]
    digests: Mapping[str, str]


@dataclass(frozen=True)
class Trust:
    """The knowledge of the receiver about the maker, from another way than the bundle's.

    allowed_signers: a file in the format of ssh-keygen's ALLOWED SIGNERS
    fingerprint: of the maker's key, as `ssh-keygen -l` prints it
    unsigned: a bundle without a signature is accepted
    """

    allowed_signers: Path | None = None
    fingerprint: str | None = None
    unsigned: bool = False


def parse_manifest(content: bytes) -> BundleManifest:
    """Read a manifest: lines `# name: text`, and lines of sha256sum.

    Raises:
        BundleError: a line is unreadable, names a path outside of the bundle, or stands there twice.
    """
    facts, digests = dict[str, str](), dict[str, str]()
    for number, line in enumerate(content.decode(errors="replace").splitlines(), 1):
        match = _LINE.fullmatch(line)
        path = PurePosixPath((match and match["path"]) or "x")
        if match is None or path.is_absolute() or ".." in path.parts or match["path"] in digests:
            raise BundleError(f"Line {number} of {MANIFEST} is wrong: unpack the archive again, or ask its maker.")
        if match["path"]:
            digests[match["path"]] = match["digest"]
        elif match["name"]:
            facts[match["name"]] = match["text"]
    if facts.get("format") != FORMAT or not {"version", "installed-bytes", *machine_facts()} <= facts.keys():
        raise BundleError(f"{MANIFEST} does not have format {FORMAT}: use the install.sh that came with it.")
    return BundleManifest(facts, digests)


def verify_signature(folder: Path, content: bytes, trust: Trust) -> str:
    """Verify that a key which the receiver trusts signed the manifest, and return the signer in words.

    Raises:
        BundleError: there is no signature, it does not fit, or no file says that its key is the maker's.
    """
    if not (folder / SIGNATURE).is_file():
        if trust.allowed_signers or trust.fingerprint:
            raise BundleError(f"This bundle has no signature ({SIGNATURE} is missing): ask its maker for a signed one.")
        if not trust.unsigned:
            raise BundleError(
                "THIS BUNDLE IS NOT SIGNED, and anyone can have changed it: ask for a signed one, or accept "
                "that with --unsigned."
            )
        return UNSIGNED
    fingerprint = _FINGERPRINT.search(_ssh_keygen(folder, content, "check-novalidate").stdout)
    if fingerprint is None:
        raise BundleError(f"{SIGNATURE} does not fit {MANIFEST}: the bundle was changed after it was signed.")
    if trust.allowed_signers:
        return f"{_find_signer(folder, content, trust.allowed_signers)} ({fingerprint[0]})"
    if trust.fingerprint is None:
        raise BundleError(
            f"The key of the signature is {fingerprint[0]}: compare it with the one that the maker gave you "
            f"by another way. If they are equal, add --fingerprint {fingerprint[0]}."
        )
    if trust.fingerprint != fingerprint[0]:
        raise BundleError(f"Another key signed the bundle, {fingerprint[0]}: do not install it, and ask its maker.")
    return fingerprint[0]


def _find_signer(folder: Path, content: bytes, allowed_signers: Path) -> str:
    if not allowed_signers.is_file():
        raise BundleError(f"{allowed_signers} is no file: name the allowed_signers file that the maker gave you.")
    signers = ("-f", str(allowed_signers.resolve()))
    principals = re.split(r"[,\n]", _ssh_keygen(folder, content, "find-principals", *signers).stdout)
    verify = ("verify", *signers, "-I", principals[0])
    if not principals[0] or _ssh_keygen(folder, content, *verify).returncode != 0:
        raise BundleError(f"Its key is not allowed by {allowed_signers}: do not install it, and ask its maker.")
    return principals[0]


def _ssh_keygen(folder: Path, content: bytes, task: str, *options: str) -> subprocess.CompletedProcess[str]:
    namespace = [] if task == "find-principals" else ["-n", NAMESPACE]
    command = ["ssh-keygen", "-Y", task, *options, *namespace, "-s", str(folder / SIGNATURE)]
    try:
        done = subprocess.run(command, input=content, capture_output=True, check=False)
    except FileNotFoundError:
        raise BundleError("ssh-keygen is not here: install OpenSSH's client, version 8.2 or newer.") from None
    if b"unknown option" in done.stderr or b"illegal option" in done.stderr:
        raise BundleError("This ssh-keygen is too old to verify signatures: install OpenSSH 8.2 or newer.")
    return subprocess.CompletedProcess(command, done.returncode, done.stdout.decode(), done.stderr.decode())


def verify_files(folder: Path, manifest: BundleManifest) -> None:
    """Verify that the folder holds the files of the manifest with their digests, and no others.

    Raises:
        BundleError: a file is missing, altered, a link, or not in the manifest.
    """
    remedy = "unpack the archive again into an empty folder, or ask its maker."
    present = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_symlink() or path.is_file()}
    if missing := sorted(manifest.digests.keys() - present):
        raise BundleError(f"{missing[0]} is missing: {remedy}")
    if strangers := sorted(present - manifest.digests.keys() - {MANIFEST, SIGNATURE}):
        raise BundleError(f"{strangers[0]} is not in {MANIFEST}: {remedy}")
    for name, digest in manifest.digests.items():
        if (folder / name).is_symlink() or file_digest(folder / name) != digest:
            raise BundleError(f"{name} was altered: {remedy}")


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def machine_facts() -> dict[str, str]:
    """Return what the wheels of a bundle depend on: Python's version and binary interface, and the processor."""
    abi = sysconfig.get_config_var("SOABI") or sys.implementation.cache_tag
    return {"python": f"{sys.version_info[0]}.{sys.version_info[1]}", "abi": abi, "machine": platform.machine()}


def verify_machine(manifest: BundleManifest) -> None:
    """Verify that the wheels can run here.

    Raises:
        BundleError: the bundle is for another Python, another processor, another system or a newer C library.
    """
    for name, text in machine_facts().items():
        expected = manifest.facts.get(name)
        if expected != text:
            raise BundleError(f"This bundle is for {name} {expected}, and here is {name} {text}: ask for another one.")
    needed, (library, version) = manifest.facts.get("glibc", "0"), platform.libc_ver()
    if library == "glibc" and _numbers(version) < _numbers(needed):
        raise BundleError(f"This bundle needs glibc {needed}, and here is {version}: use a newer system.")


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]


def verify_target(target: Path, manifest: BundleManifest) -> None:
    """Verify that the target can be made.

    Raises:
        BundleError: it exists, its parent cannot be written, or the disk has too little space.
    """
    if os.path.lexists(target):
        raise BundleError(f"{target} exists: name a new folder. Two versions may stand side by side.")
    if not target.parent.is_dir() or not os.access(target.parent, os.W_OK | os.X_OK):
        raise BundleError(f"{target.parent} is no folder in which you can write: make it, or name another target.")
    needed, free = int(manifest.facts["installed-bytes"]), shutil.disk_usage(target.parent).free
    if free < needed:
        raise BundleError(
            f"{target.parent} has {free / 1e6:.0f} MB free, and {needed / 1e6:.0f} are needed: name another target."
        )


def pip_command(python: Path, bundle: Path) -> list[str]:
    """Return the start of a pip command that takes the wheels of the bundle and asks no index.

    pip runs from its wheel, because some systems have Python without pip.

    Raises:
        BundleError: the bundle has no pip.
    """
    pip = next((bundle / WHEELS).glob("pip-*.whl"), None)
    if pip is None:
        raise BundleError(f"The bundle has no wheel of pip in {WHEELS}: ask its maker for another one.")
    sources = ["--no-index", "--find-links", str(bundle / WHEELS), "--only-binary", ":all:", "--no-cache-dir"]
    lock = ["--require-hashes", "--requirement", str(bundle / LOCK)]
    return [str(python), "-I", f"{pip}/pip", "install", "--quiet", "--disable-pip-version-check", *sources, *lock]


def clean_environment(**settings: str) -> dict[str, str]:
    """Return the environment without settings of pip and Python, which could name an index or other packages."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith(("PIP_", "PYTHON"))}
    return {**environment, "PIP_CONFIG_FILE": os.devnull, **settings}


def install_bundle(bundle: Path, target: Path, manifest: BundleManifest) -> None:
    """Install into a folder beside the target, check the installation there, and rename the folder at the end.

    Guarantees:
        The target is there only after everything has worked. A failure leaves no files behind.

    Raises:
        BundleError: a step failed.
    """
    partial = target.with_name(f"{target.name}.partial")
    try:
        partial.mkdir()
    except FileExistsError:
        raise BundleError(f"{partial} exists: an installation is running, or one was killed. Then remove it.") from None
    try:
        temporary = partial / "tmp"
        temporary.mkdir()
        _do("The environment could not be made", [sys.executable, "-I", "-m", "venv", "--without-pip", str(partial)])
        python = partial / "bin" / "python"
        _do("pip could not install the wheels", pip_command(python, bundle), TMPDIR=str(temporary))
        _do("The self-check failed", [str(python), "-I", "-c", _SELF_CHECK])
        _check_version(partial, manifest)
        shutil.rmtree(temporary)
        _name_target(partial, target)
        partial.rename(target)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    try:
        _check_version(target, manifest)
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise


def _check_version(environment: Path, manifest: BundleManifest) -> None:
    version = _do("The self-check failed", [str(environment / "bin" / "wardround"), "--version"])
    if version.split() != ["wardround", manifest.facts["version"]]:
        raise BundleError(f"The self-check failed: `wardround --version` says {version.strip()!r}. Ask the maker.")


def _name_target(partial: Path, target: Path) -> None:
    """Let the scripts of an environment name the folder that it will have."""
    for path in (partial / "pyvenv.cfg", *(partial / "bin").iterdir()):
        content = b"" if path.is_symlink() or path.is_dir() else path.read_bytes()
        if os.fsencode(partial) in content:
            path.write_bytes(content.replace(os.fsencode(partial), os.fsencode(target)))


def _do(failure: str, command: Sequence[str], **settings: str) -> str:
    """Run a command and return its standard output."""
    done = subprocess.run(command, env=clean_environment(**settings), capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return done.stdout
    if any(os.strerror(number) in done.stdout + done.stderr for number in (errno.ENOSPC, errno.EDQUOT)):
        raise BundleError(f"{failure}: the disk is full. Free space, or name a target on another disk.")
    lines = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()
    errors = [line for line in lines if line.startswith("ERROR:")] or lines
    raise BundleError(f"{failure}: {errors[-1].removeprefix('ERROR:').strip()}")


def describe_next_steps(bundle: Path, target: Path, manifest: BundleManifest) -> str:
    """Return what to do after an installation."""
    pages = [path for path in sorted(manifest.digests) if re.search(r"/hospital\.(html|md)$", path)]
    images = [path for path in sorted(manifest.digests) if path.startswith("image/")]
    steps = [
        f"export PATH={target}/bin:$PATH",
        "wardround doctor",
        *(f"read {bundle / path}, from step 2 on" for path in pages[:1]),
        *(f"docker load --input {bundle / path}    # if you run containers" for path in images),
    ]
    return f"Installed Wardround {manifest.facts['version']} in {target}. Next:\n  " + "\n  ".join(steps)


def main(arguments: Sequence[str] | None = None) -> int:
    """Verify and install the bundle in which this file lies, and return the exit code."""
    bundle = Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(prog="install.sh", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("target", type=Path, nargs="?", help="the new folder, left out to verify the bundle alone")
    parser.add_argument("--allowed-signers", type=Path, help="the maker's allowed_signers file, got by another way")
    parser.add_argument("--fingerprint", help="the fingerprint of the maker's key, got by another way")
    parser.add_argument("--unsigned", action="store_true", help="install a bundle without a signature")
    options = parser.parse_args(arguments)
    try:
        content = (bundle / MANIFEST).read_bytes()
        trust = Trust(options.allowed_signers, options.fingerprint, options.unsigned)
        signer = verify_signature(bundle, content, trust)
        manifest = parse_manifest(content)
        verify_files(bundle, manifest)
        print(f"Verified {len(manifest.digests)} files. Signature: {signer}", flush=True)
        verify_machine(manifest)
        if options.target is not None:
            target = Path(os.path.abspath(options.target))
            verify_target(target, manifest)
            install_bundle(bundle, target, manifest)
            print(describe_next_steps(bundle, target, manifest))
    except BundleError as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"The installation failed: {error.strerror or error}.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    # What stops the installation also removes what it has begun.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit("The installation was stopped."))
    # The user of a service has to read the program, also where root's own files are private.
    os.umask(0o022)
    sys.exit(main())
