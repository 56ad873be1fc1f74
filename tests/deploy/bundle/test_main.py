"""The command line that makes a bundle: what it signs, what it refuses, and that it repeats its bytes."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

from deploy.bundle import __main__ as program
from deploy.bundle.__main__ import main
from deploy.bundle.installer import UNSIGNED, file_digest, parse_manifest
from tests.factories.bundles import build_bundle, bundle_options, new_key, tiny_wheels


@pytest.fixture(autouse=True)
def no_dry_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what takes pip seconds. `test_installer.py` makes its bundles with it."""
    monkeypatch.setattr(program, "verify_lock", lambda _: None)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ([], "Name the key that signs, with BUNDLE_KEY=path or --key, or else say --unsigned."),
        (["--key", "key", "--unsigned"], "Name the key that signs, with BUNDLE_KEY=path or --key, or else say"),
        (["--key", "missing"], "missing is no key that ssh-keygen reads"),
        (["--key", "wheels/wardhelper-2.0-py3-none-any.whl"], "is no key that ssh-keygen reads"),
        (["--unsigned", "--extras", "hospital"], "There is no extra 'hospital'"),
        (["--unsigned", "--wheels", "elsewhere"], "elsewhere is no folder"),
    ],
)
def test_what_cannot_become_a_bundle_is_one_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    new_key(Path("key"))
    assert main([*bundle_options(tiny_wheels(Path("wheels")), tmp_path / "dist"), *options]) == 1
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert sentence in printed.err
    assert not list(tmp_path.rglob("*.tar"))
    assert not list(tmp_path.glob("dist/bundle-*"))


def test_the_same_wheels_give_the_same_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key, wheels = new_key(tmp_path / "key"), tiny_wheels(tmp_path / "wheels")
    first = build_bundle(wheels, tmp_path / "first", "--key", str(key))
    for path in wheels.iterdir():
        os.utime(path, (1, 1))
        path.chmod(0o600)
    second = build_bundle(wheels, tmp_path / "second", "--key", str(key))
    assert first.read_bytes() == second.read_bytes()
    assert f"SHA-256: {file_digest(first)}\n" in capsys.readouterr().out
    assert os.listdir(tmp_path / "first") == [first.name]
    with tarfile.open(first) as archive:
        members = archive.getmembers()
    assert [member.name for member in members] == sorted(member.name for member in members)
    assert {(member.mtime, member.uid, member.uname) for member in members} == {(1_577_836_800, 0, "")}
    assert [member.name.rpartition("/")[2] for member in members if member.mode & 0o111] == ["install.sh"]


def test_an_unsigned_bundle_says_so_loudly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = build_bundle(tiny_wheels(tmp_path / "wheels"), tmp_path / "dist", "--unsigned")
    assert f"Signature: {UNSIGNED}" in capsys.readouterr().out
    with tarfile.open(bundle) as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers()}
        content = archive.extractfile(f"{bundle.stem}/MANIFEST")
        assert content is not None
        facts = parse_manifest(content.read()).facts
    assert "MANIFEST.sig" not in names
    assert facts["signature"] == UNSIGNED
    assert facts["image"].startswith("none, because")
    assert (facts["documents"], facts["extras"], facts["version"]) == ("Markdown", "client", "0.1.0")
