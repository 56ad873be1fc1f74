"""An unpacked bundle is verified whole, and what is wrong with it or with the machine is one sentence."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from deploy.bundle import installer
from deploy.bundle.archive import read_key, sign_manifest, write_manifest
from deploy.bundle.installer import (
    MANIFEST,
    SIGNATURE,
    UNSIGNED,
    BundleError,
    BundleManifest,
    Trust,
    install_bundle,
    parse_manifest,
    verify_files,
    verify_machine,
    verify_signature,
    verify_target,
)
from tests.factories.bundles import allow_signer, build_bundle, new_key, run_installer, tiny_wheels, unpack

WHEEL = "wheels/wardhelper-2.0-py3-none-any.whl"


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_key(tmp_path_factory.mktemp("key") / "maker")


@pytest.fixture(scope="module")
def archive(key: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("maker")
    return build_bundle(tiny_wheels(folder / "wheels"), folder / "dist", "--key", str(key))


@pytest.fixture
def bundle(archive: Path, tmp_path: Path) -> Path:
    return unpack(archive, tmp_path / "unpacked")


def read_manifest(bundle: Path) -> BundleManifest:
    return parse_manifest((bundle / MANIFEST).read_bytes())


def with_facts(bundle: Path, key: Path, **facts: str) -> BundleManifest:
    """Return the manifest after its maker has signed these facts."""
    (bundle / SIGNATURE).unlink()
    manifest = read_manifest(bundle)
    (bundle / MANIFEST).unlink()
    write_manifest(bundle, {**manifest.facts, **{name.replace("_", "-"): text for name, text in facts.items()}})
    sign_manifest(bundle, key)
    return read_manifest(bundle)


def signer_of(bundle: Path, trust: Trust) -> str:
    return verify_signature(bundle, (bundle / MANIFEST).read_bytes(), trust)


def test_the_maker_s_signature_is_accepted_by_file_and_by_fingerprint(bundle: Path, key: Path, tmp_path: Path) -> None:
    fingerprint = read_key(key)
    allowed = allow_signer(key, tmp_path / "allowed")
    assert signer_of(bundle, Trust(allowed_signers=allowed)) == f"maker@example.org ({fingerprint})"
    assert signer_of(bundle, Trust(fingerprint=fingerprint)) == fingerprint


def test_without_what_the_receiver_knows_the_fingerprint_is_only_shown(bundle: Path, key: Path) -> None:
    with pytest.raises(BundleError, match="compare it with the one") as refusal:
        signer_of(bundle, Trust())
    assert f"add --fingerprint {read_key(key)}." in str(refusal.value)


@pytest.mark.parametrize("options", ["", 'namespaces="file" ', 'valid-before="20200101" '])
def test_a_key_that_is_not_the_maker_s_is_refused(bundle: Path, key: Path, tmp_path: Path, options: str) -> None:
    # Another key, the maker's for another purpose, and the maker's after its time.
    signer = key if options else new_key(tmp_path / "other")
    allowed = allow_signer(signer, tmp_path / "allowed", options)
    with pytest.raises(BundleError, match="is not allowed by"):
        signer_of(bundle, Trust(allowed_signers=allowed))
    with pytest.raises(BundleError, match="Another key signed"):
        signer_of(bundle, Trust(fingerprint="SHA256:" + "A" * 43))


def test_a_signature_for_another_purpose_is_refused(bundle: Path, key: Path, tmp_path: Path) -> None:
    (bundle / SIGNATURE).unlink()
    subprocess.run(["ssh-keygen", "-q", "-Y", "sign", "-f", key, "-n", "file", bundle / MANIFEST], check=True)
    with pytest.raises(BundleError, match="changed after it was signed"):
        signer_of(bundle, Trust(allowed_signers=allow_signer(key, tmp_path / "allowed", "")))


@pytest.mark.parametrize("trusted", ["allowed_signers", "fingerprint"])
@pytest.mark.parametrize("name", [MANIFEST, SIGNATURE])
def test_an_altered_manifest_or_signature_is_refused(
    bundle: Path, key: Path, tmp_path: Path, name: str, trusted: str
) -> None:
    # One sign of the last line of text, which in a signature is of its own numbers.
    *lines, last = (bundle / name).read_bytes().removesuffix(b"-----END SSH SIGNATURE-----\n").splitlines(keepends=True)
    ending = b"-----END SSH SIGNATURE-----\n" if name == "MANIFEST.sig" else b""
    (bundle / name).write_bytes(b"".join(lines) + (b"A" if last[:1] != b"A" else b"B") + last[1:] + ending)
    trust = {"allowed_signers": allow_signer(key, tmp_path / "allowed"), "fingerprint": read_key(key)}
    with pytest.raises(BundleError, match="changed after it was signed"):
        signer_of(bundle, dataclasses.replace(Trust(), **{trusted: trust[trusted]}))


def test_a_removed_signature_is_not_accepted_as_an_unsigned_bundle(bundle: Path, key: Path, tmp_path: Path) -> None:
    (bundle / SIGNATURE).unlink()
    with pytest.raises(BundleError, match="has no signature"):
        signer_of(bundle, Trust(allowed_signers=allow_signer(key, tmp_path / "allowed"), unsigned=True))
    with pytest.raises(BundleError, match=r"^THIS BUNDLE IS NOT SIGNED"):
        signer_of(bundle, Trust())
    assert signer_of(bundle, Trust(unsigned=True)) == UNSIGNED


def test_a_missing_list_of_signers_and_a_missing_ssh_keygen_are_named(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BundleError, match="is no file: name the allowed_signers"):
        signer_of(bundle, Trust(allowed_signers=tmp_path / "none"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BundleError, match="ssh-keygen is not here"):
        signer_of(bundle, Trust())
    old = tmp_path / "ssh-keygen"
    old.write_text('#!/bin/sh\necho "unknown option -- Y" >&2\nexit 1\n')
    old.chmod(0o755)
    with pytest.raises(BundleError, match="too old"):
        signer_of(bundle, Trust())


def test_the_files_of_a_bundle_are_those_of_its_manifest(bundle: Path) -> None:
    manifest = read_manifest(bundle)
    verify_files(bundle, manifest)
    assert {"install.sh", "install.py", "requirements.lock", "sbom.cdx.json", WHEEL} <= manifest.digests.keys()
    check = subprocess.run(["sha256sum", "--check", "--strict", "--quiet", MANIFEST], cwd=bundle, capture_output=True)
    assert (check.returncode, check.stdout, check.stderr) == (0, b"", b"")


def test_a_file_that_is_missing_altered_linked_or_new_is_refused(bundle: Path, tmp_path: Path) -> None:
    manifest = read_manifest(bundle)
    wheel = bundle / WHEEL
    content = wheel.read_bytes()
    wheel.unlink()
    with pytest.raises(BundleError, match=f"^{WHEEL} is missing"):
        verify_files(bundle, manifest)
    wheel.write_bytes(content[:-1] + b"x")
    with pytest.raises(BundleError, match=f"^{WHEEL} was altered"):
        verify_files(bundle, manifest)
    (tmp_path / "same.whl").write_bytes(content)
    wheel.unlink()
    wheel.symlink_to(tmp_path / "same.whl")
    with pytest.raises(BundleError, match=f"^{WHEEL} was altered"):
        verify_files(bundle, manifest)
    wheel.unlink()
    wheel.write_bytes(content)
    (bundle / "wheels" / "more.whl").touch()
    with pytest.raises(BundleError, match=r"^wheels/more\.whl is not in MANIFEST"):
        verify_files(bundle, manifest)


@pytest.mark.parametrize("line", ["words", f"{'0' * 64}  /etc/x", f"{'0' * 64}  a/../../x", f"{'0' * 64}  {WHEEL}"])
def test_a_wrong_line_of_the_manifest_is_refused(bundle: Path, line: str) -> None:
    content = (bundle / MANIFEST).read_bytes() + line.encode()
    with pytest.raises(BundleError, match=rf"^Line {len(content.splitlines())} of MANIFEST is wrong"):
        parse_manifest(content)


@pytest.mark.parametrize("content", [b"", b"# format: 2\n", b"# format: 1\n", b"\xff"])
def test_a_manifest_without_its_facts_is_refused(content: bytes) -> None:
    with pytest.raises(BundleError):
        parse_manifest(content)


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("python", "3.99", "for python 3.99, and here is python 3."),
        ("abi", "cpython-311-x86_64-linux-musl", "for abi cpython-311-x86_64-linux-musl"),
        ("machine", "riscv128", "for machine riscv128"),
        ("glibc", "99.1", "needs glibc 99.1"),
    ],
)
def test_another_machine_is_refused(bundle: Path, name: str, text: str, sentence: str) -> None:
    manifest = read_manifest(bundle)
    verify_machine(manifest)
    with pytest.raises(BundleError, match=sentence):
        verify_machine(BundleManifest({**manifest.facts, name: text}, manifest.digests))


def test_a_target_that_exists_or_cannot_be_made_is_refused(bundle: Path, tmp_path: Path) -> None:
    manifest = read_manifest(bundle)
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    for target in (tmp_path, tmp_path / "file", tmp_path / "link"):
        with pytest.raises(BundleError, match=r"exists: name a new folder"):
            verify_target(target, manifest)
    for target in (tmp_path / "missing" / "target", tmp_path / "file" / "target"):
        with pytest.raises(BundleError, match=r"is no folder in which you can write"):
            verify_target(target, manifest)
    verify_target(tmp_path / "target", manifest)
    with pytest.raises(BundleError, match=r"MB free, and 1000000000000 are needed"):
        verify_target(tmp_path / "target", BundleManifest({**manifest.facts, "installed-bytes": str(10**18)}, {}))


def test_two_installations_into_one_target_exclude_each_other(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "target.partial").mkdir()
    with pytest.raises(BundleError, match=r"target\.partial exists"):
        install_bundle(bundle, tmp_path / "target", read_manifest(bundle))
    assert (tmp_path / "target.partial").exists()


def test_the_starter_names_the_python_that_is_missing(bundle: Path, key: Path) -> None:
    with_facts(bundle, key, python="3.99")
    run = run_installer(bundle, "target", python=sys.executable)
    assert (run.returncode, run.stdout) == (1, "")
    assert run.stderr.startswith(f"This bundle needs Python 3.99, and {sys.executable} is not it: install it")
    (bundle / MANIFEST).unlink()
    run = run_installer(bundle, "target", python=sys.executable)
    assert run.stderr.startswith("MANIFEST or install.py is missing")
    assert run.stderr.count("\n") == 1


def test_without_a_target_the_bundle_is_only_verified(bundle: Path, key: Path) -> None:
    before = sorted(bundle.parent.rglob("*"))
    run = run_installer(bundle, "--fingerprint", read_key(key), python=sys.executable)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout == f"Verified {len(read_manifest(bundle).digests)} files. Signature: {read_key(key)}\n"
    assert sorted(bundle.parent.rglob("*")) == before


@pytest.mark.slow
def test_the_program_runs_from_a_folder_with_a_space(bundle: Path, key: Path, tmp_path: Path) -> None:
    target = tmp_path / "my target"
    allowed = allow_signer(key, tmp_path / "allowed")
    run = run_installer(bundle, "--allowed-signers", allowed, target, python=sys.executable)
    assert (run.returncode, run.stderr) == (0, "")
    assert f"Installed Wardround 0.1.0 in {target}" in run.stdout
    assert "documents/docs/hospital.md" in run.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["allowed", "my target", "unpacked"]
    shutil.rmtree(bundle)
    program = subprocess.run([target / "bin" / "wardround"], env={}, capture_output=True, text=True, check=True)
    assert program.stdout == "wardround 0.1.0\n"
    assert not [path for path in (target / "bin").iterdir() if os.fsencode(f"{target}.partial") in path.read_bytes()]
    assert (target.stat().st_mode & 0o777) == 0o755


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wheels", "sentence"),
    [
        ({"version": "9.9"}, "The self-check failed: `wardround --version` says 'wardround 9.9'"),
        ({"helper": "import a_library_that_is_not_here"}, "The self-check failed: ModuleNotFoundError"),
    ],
)
def test_a_program_that_does_not_run_leaves_nothing(
    tmp_path: Path, key: Path, wheels: dict[str, str], sentence: str
) -> None:
    archive = build_bundle(tiny_wheels(tmp_path / "wheels", **wheels), tmp_path / "dist", "--unsigned")
    (tmp_path / "home").mkdir()
    bundle = unpack(archive, tmp_path / "unpacked")
    run = run_installer(bundle, "--unsigned", tmp_path / "home" / "target", python=sys.executable)
    assert UNSIGNED in run.stdout
    assert (run.returncode, run.stderr.startswith(sentence), run.stderr.count("\n")) == (1, True, 1), run.stderr
    assert os.listdir(tmp_path / "home") == []


@pytest.mark.slow
def test_a_wheel_that_changes_after_it_was_verified_leaves_nothing(bundle: Path, tmp_path: Path) -> None:
    manifest = read_manifest(bundle)
    (bundle / WHEEL).write_bytes((bundle / "wheels" / "wardround-0.1.0-py3-none-any.whl").read_bytes())
    with pytest.raises(BundleError, match=r"^pip could not install the wheels: ") as refusal:
        install_bundle(bundle, tmp_path / "target", manifest)
    assert "\n" not in str(refusal.value)
    assert os.listdir(tmp_path) == ["unpacked"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1), OSError(28, "No space left on device")])
def test_a_stop_in_the_midst_leaves_nothing(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def stop_at_pip(failure: str, *_: object, **__: object) -> str:
        if failure.startswith("pip"):
            raise error
        return ""

    monkeypatch.setattr(installer, "_do", stop_at_pip)
    with pytest.raises(type(error)):
        install_bundle(bundle, tmp_path / "target", read_manifest(bundle))
    assert os.listdir(tmp_path) == ["unpacked"]


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="mounting a small disk needs root")
def test_a_full_disk_is_one_sentence_and_leaves_nothing(bundle: Path, key: Path, tmp_path: Path) -> None:
    """The manifest promises less than the installation takes, so that the disk fills up in its midst."""
    with_facts(bundle, key, installed_bytes="1")
    small = tmp_path / "small"
    small.mkdir()
    install = f"sh {bundle}/install.sh --fingerprint {read_key(key)} {small}/target"
    mount = f"mount -t tmpfs -o size=3m none {small} && {{ {install}; code=$?; ls -A {small}; exit $code; }}"
    run = subprocess.run(
        ["unshare", "--mount", "sh", "-c", mount],
        env={"PATH": os.environ["PATH"], "PYTHON": sys.executable, "LC_ALL": "C"},
        capture_output=True,
        text=True,
        check=False,
    )
    if "permission denied" in run.stderr:
        pytest.skip("this kernel refuses to mount a small disk")
    assert run.returncode == 1
    assert run.stderr.endswith("the disk is full. Free space, or name a target on another disk.\n")
    assert run.stdout.splitlines()[1:] == []


def test_no_archive_takes_the_place_of_the_file_that_it_is_verified_with(archive: Path, tmp_path: Path) -> None:
    """The commands of the page unpack it before they can verify it."""
    page = (Path(__file__).parents[3] / "docs" / "offline.md").read_text()
    (command,) = (line.removeprefix("$ ") for line in page.splitlines() if " tar -xf " in line)
    name = re.findall(r"wardround-\S+\.tar", command)[0]
    allowed, hostile = tmp_path / "allowed_signers", tmp_path / "hostile"
    allowed.write_text("the maker's")
    hostile.write_text("another one's")
    with tarfile.open(archive) as source, tarfile.open(tmp_path / name, "w", format=tarfile.PAX_FORMAT) as target:
        for member in source.getmembers():
            member.name = member.name.replace(archive.stem, name.removesuffix(".tar"))
            target.addfile(member, source.extractfile(member))
        for wanted in ("allowed_signers", "../allowed_signers", str(allowed), "x/../../allowed_signers"):
            target.add(hostile, wanted)
    script = f"set -e\n{{ {command}\n}} || true\nls"
    subprocess.run(["sh", "-c", script], cwd=tmp_path, check=True, capture_output=True)
    assert allowed.read_text() == "the maker's"
