"""What keeps a file from being written is said before the work, by every command that writes one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.factories.commands import Run
from tests.factories.released import TABLE, write_model
from wardround.cli.shared.output import require_writable


def test_a_new_file_in_a_folder_may_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require_writable(None)
    require_writable(tmp_path / "new.csv")
    monkeypatch.chdir(tmp_path)
    require_writable(Path("new.csv"))
    Path("old.csv").write_text("x")
    require_writable(Path("old.csv"), replaces=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old.csv"]


def test_what_is_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "old.csv").write_text("x")
    (tmp_path / "link.csv").symlink_to(tmp_path / "nowhere.csv")
    for name, kind, told in [
        ("old.csv", FileExistsError, "exists already, and is not overwritten: choose another name"),
        ("link.csv", FileExistsError, "exists already"),
        (".", IsADirectoryError, "is a folder: name a file in it"),
        ("none/new.csv", FileNotFoundError, "there is no folder .*none: make it first"),
        ("old.csv/new.csv", NotADirectoryError, "old.csv is a file, and no folder"),
        ("x" * 300, OSError, "the name is too long"),
    ]:
        with pytest.raises(kind, match=told):
            require_writable(tmp_path / name)
    with pytest.raises(IsADirectoryError):
        require_writable(tmp_path, replaces=True)


def test_a_folder_without_rights_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Whoever runs the tests may be allowed everything: what the system answers is what is tested.
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)
    with pytest.raises(PermissionError, match="no file can be written into"):
        require_writable(tmp_path / "new.csv")


@pytest.mark.quick("words15")
@pytest.mark.parametrize(
    "words",
    [
        ("predict", "MODEL", "--data", "none.csv", "-o"),
        ("export", "MODEL", "--onnx"),
        ("export", "MODEL", "--torch"),
        ("plan", "none.toml", "--solve", "noise", "-o"),
        ("plan", "none.toml", "--suggest", "-o"),
        ("study", "template", "-o"),
        ("study", "weights", "--settings", "none.toml", "-o"),
        ("study", "model", "sepsis", "-o"),
        ("policy", "template", "-o"),
        ("query", "template", "survival", "-o"),
        ("query", "show", "sepsis", "1", "--csv"),
        ("ask", "sepsis", "none.toml", "--csv"),
        ("certificate", "show", "sepsis", "-o"),
        ("certificate", "pdf", "MODEL", "-o"),
        ("ledger", "export", "sepsis", "--out"),
        ("card", "sepsis", "-o"),
    ],
)
def test_every_command_says_so_before_it_reads_or_asks_anything(
    run: Run, tmp_path: Path, words: tuple[str, ...]
) -> None:
    model = str(write_model(tmp_path / "m.safetensors", "logistic-regression", TABLE))
    suffix = ".toml" if words[0] == "plan" else ".json" if words[0] == "certificate" else ".md"
    asks = words[:2] in [("study", "model"), ("query", "show"), ("certificate", "show"), ("ledger", "export")]
    asks = asks or words[0] in ("ask", "card")
    given = [model if word == "MODEL" else word for word in words]
    said = run(*given, str(tmp_path / "none" / f"new{suffix}"), code=1, operator=asks).stderr
    assert f"there is no folder {tmp_path / 'none'}" in said
    folder = tmp_path / f"folder{suffix}"
    folder.mkdir()
    assert "is a folder: name a file in it" in run(*given, str(folder), code=1, operator=asks).stderr
