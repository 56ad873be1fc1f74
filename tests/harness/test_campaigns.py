"""Parts run once: what has passed is left out, what failed begins anew, and the exit code tells the two apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.campaigns import PARTS, Campaigns, Part, main


def counting(folder: Path, name: str, end: str) -> Part:
    """A part that writes a line each time it runs."""
    return Part(("-c", f"open({str(folder / name)!r}, 'a').write('ran\\n'); {end}"), f"the part {name}")


def runs(folder: Path, name: str) -> int:
    path = folder / name
    return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.fixture
def campaigns(tmp_path: Path) -> Campaigns:
    fails_until_mended = (
        f"import sys, pathlib; print('said'); sys.exit(not pathlib.Path({str(tmp_path / 'mended')!r}).exists())"
    )
    parts = {
        "good": counting(tmp_path, "good", ""),
        "bad": counting(tmp_path, "bad", fails_until_mended),
        "last": counting(tmp_path, "last", ""),
    }
    return Campaigns(parts, tmp_path / "marks")


def test_a_part_that_passed_is_left_out_and_one_that_failed_begins_anew(
    campaigns: Campaigns, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([], campaigns) == 1
    assert [runs(tmp_path, name) for name in campaigns.parts] == [1, 1, 1], "a failure does not end the campaign"
    assert (campaigns.passed("bad"), (tmp_path / "marks" / "bad.log").read_text()) == (None, "said\n")
    assert "not passed" in capsys.readouterr().out
    (tmp_path / "mended").touch()
    assert main([], campaigns) == 0
    assert [runs(tmp_path, name) for name in campaigns.parts] == [1, 2, 1]
    assert main([], campaigns) == 0
    assert [runs(tmp_path, name) for name in campaigns.parts] == [1, 2, 1]


def test_a_part_that_is_named_runs_alone(campaigns: Campaigns, tmp_path: Path) -> None:
    assert main(["last"], campaigns) == 0
    assert [runs(tmp_path, name) for name in campaigns.parts] == [0, 0, 1]
    assert main(["bad"], campaigns) == 1


def test_the_parts_are_listed_without_running_any(
    campaigns: Campaigns, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--list"], campaigns) == 0
    output = capsys.readouterr().out
    assert all(name in output for name in campaigns.parts)
    assert not (tmp_path / "marks").exists()


def test_an_unknown_part_is_refused_with_the_names_of_those_there_are(
    campaigns: Campaigns, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["chaos"], campaigns)
    assert "good, bad, last" in capsys.readouterr().err


def test_a_part_that_is_stopped_has_not_passed(campaigns: Campaigns, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("tests.harness.campaigns.subprocess.run", stopped)
        with pytest.raises(KeyboardInterrupt):
            main(["good"], campaigns)
    assert campaigns.passed("good") is None


def test_every_part_is_a_program_of_ours_or_the_tests() -> None:
    root = Path(__file__).parents[2]
    for part in PARTS.values():
        assert part.command[0] == "-m"
        path = root.joinpath(*part.command[1].split(".")).with_suffix(".py")
        assert part.command[1] == "pytest" or path.is_file()
