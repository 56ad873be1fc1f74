"""The check as a command, on a tree whose figures are known and in a repository of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from research.quality.check import MEASURED_BY_RUNNING, main, measure

SOURCES = {
    "pyproject.toml": "[tool.hatch.build.targets.wheel]\npackages = ['accounting']\n",
    "accounting/__init__.py": "",
    "accounting/units.py": "# Why.\nfound = 1\nrows = 2\n",
    "README.md": "Read the source of this package.\n",
}


def git(root: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *identity, *arguments], cwd=root, check=True, capture_output=True)


def commit(root: Path) -> None:
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "Change")


def write_limits(root: Path, **changed: str) -> None:
    """Limit every figure at its measured value, except where `changed` has another table."""
    measured = measure(root) | dict.fromkeys(MEASURED_BY_RUNNING, 1.0)
    tables = {name: f"ceiling = {value}" for name, value in measured.items()} | changed
    (root / "quality.toml").write_text("".join(f"[{name}]\n{body}\n\n" for name, body in tables.items()))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in SOURCES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    write_limits(tmp_path)
    return tmp_path


def test_a_tree_at_its_limits_passes(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tree)]) == 0
    output = capsys.readouterr()
    assert output.err == ""
    assert ["shipped_lines", "3", "<=", "3"] in [line.split() for line in output.out.splitlines()]
    assert "can be" not in output.out


def test_a_figure_over_its_ceiling_fails_and_is_named(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (tree / "accounting" / "units.py").open("a") as file:
        file.write("columns = 3\n")
    assert main([str(tree)]) == 1
    complaints = capsys.readouterr().err.splitlines()
    assert [line for line in complaints if "shipped_lines is 4, which is over its ceiling of 3." in line]


def test_room_below_a_ceiling_is_told_and_taken(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_limits(
        tree, shipped_lines="ceiling = 9\ntarget = 2", comments_per_100_lines="floor = 10", docs_words="floor = 7"
    )
    before = (tree / "quality.toml").read_text()
    assert main([str(tree), "--lower"]) == 1
    output = capsys.readouterr()
    lines = {line.split()[0]: line for line in output.out.splitlines()}
    assert lines["shipped_lines"].endswith("can be lowered to 3")
    assert lines["comments_per_100_lines"].endswith("can be raised to 33.33")
    # What is broken already is not touched.
    assert "docs_words is 6, which is under its floor of 7." in output.err
    expected = before.replace("ceiling = 9", "ceiling = 3").replace("floor = 10", "floor = 33.33")
    assert (tree / "quality.toml").read_text() == expected


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"shipped_lines": "ceiling = nan"}, "shipped_lines.ceiling is nan"),
        ({"shipped_lines": "ceiling = 'three'"}, "shipped_lines.ceiling is 'three'"),
        ({"shiped_lines": "ceiling = 3"}, "unknown figure shiped_lines"),
    ],
)
def test_a_bad_file_is_an_error_of_its_own(
    tree: Path, capsys: pytest.CaptureFixture[str], changed: dict[str, str], message: str
) -> None:
    write_limits(tree, **changed)
    assert main([str(tree)]) == 2
    assert message in capsys.readouterr().err


def test_a_missing_file_and_a_source_that_is_no_python_are_errors(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tree / "accounting" / "units.py").write_text("def\n")
    assert main([str(tree)]) == 2
    assert "accounting/units.py is no Python" in capsys.readouterr().err
    (tree / "quality.toml").unlink()
    assert main([str(tree)]) == 2
    assert "quality.toml" in capsys.readouterr().err


def test_a_raised_ceiling_needs_a_sentence(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git(tree, "init", "-q")
    # No commit yet: there is nothing to compare with.
    assert main([str(tree)]) == 0
    commit(tree)
    assert main([str(tree)]) == 0
    write_limits(tree, shipped_lines="ceiling = 4")
    assert main([str(tree)]) == 1
    assert "shipped_lines had the ceiling 3 and has the ceiling 4 now." in capsys.readouterr().err
    write_limits(tree, shipped_lines="ceiling = 4\nwhy = 'A new unit needs a line.'")
    assert main([str(tree)]) == 0


def test_a_raised_ceiling_that_is_committed_fails_too(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git(tree, "init", "-q")
    commit(tree)
    write_limits(tree, shipped_lines="ceiling = 4")
    commit(tree)
    assert main([str(tree)]) == 1
    assert "shipped_lines had the ceiling 3" in capsys.readouterr().err


def test_a_committed_file_that_cannot_be_read_is_left_aside(tree: Path) -> None:
    git(tree, "init", "-q")
    text = (tree / "quality.toml").read_text()
    (tree / "quality.toml").write_text("[nothing")
    commit(tree)
    (tree / "quality.toml").write_text(text)
    assert main([str(tree)]) == 0
