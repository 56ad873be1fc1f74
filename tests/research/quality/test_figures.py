"""What is read from the last run of the tests, and what is written down."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from research.benchmarks.watched_round import Way
from research.benchmarks.way_of_an_update import figures
from research.quality.figures import limited_by_running, read_times, summary, times_by_folder, write_record
from research.quality.structure import RESULTS, MeasurementError

ROOT = Path(__file__).parents[3]
CASE = """<testcase classname="{}" name="test" time="{}"><properties>
<property name="processor_seconds" value="{}"/></properties></testcase>"""
CASES = [
    ("tests.accounting.test_units", 1.25, 1.0),
    ("tests.server.services.rounds.test_close.TestClose", 2.0, 4.5),
    ("tests.server.services.test_views", 0.5, 0.25),
]


def write_times(path: Path, cases: list[str]) -> Path:
    path.write_text(f'<testsuites><testsuite name="pytest" time="90.06">{"".join(cases)}</testsuite></testsuites>')
    return path


def ways(hospital: list[str], coordinator: list[str]) -> dict[str, Any]:
    return {"masked": figures(Way(hospital, coordinator)), "clear": figures(Way([], []))}


def test_seconds_are_summed_by_folder(tmp_path: Path) -> None:
    times = times_by_folder(*read_times(write_times(tmp_path / "junit.xml", [CASE.format(*case) for case in CASES])))
    assert times == {
        "run_wall_seconds": 90.1,
        "cases": 3,
        "wall_seconds": 3.8,
        "processor_seconds": 5.8,
        "folders": {
            "tests/accounting": {"cases": 1, "wall_seconds": 1.2, "processor_seconds": 1.0},
            "tests/server/services": {"cases": 2, "wall_seconds": 2.5, "processor_seconds": 4.8},
        },
    }
    assert [line.split()[0] for line in summary(times)] == ["folder", "tests/server/services", "tests/accounting"]


def test_processor_seconds_are_unknown_where_one_case_has_none(tmp_path: Path) -> None:
    plain = '<testcase classname="tests.accounting.test_units" name="test" time="1"/>'
    cases = [plain, CASE.format(*CASES[0]), CASE.format(*CASES[1])]
    times = times_by_folder(*read_times(write_times(tmp_path / "junit.xml", cases)))
    assert times["processor_seconds"] is None
    assert times["folders"]["tests/accounting"]["processor_seconds"] is None
    assert times["folders"]["tests/server/services"]["processor_seconds"] == 4.5
    assert set(limited_by_running(ways([], []), times)) == {
        "masked_update_files",
        "masked_update_hospital_returns",
        "masked_update_coordinator_returns",
        "test_minutes",
    }


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<testsuites>",
        '<testsuite time="ten"/>',
        "<testsuite/>",
        '<testsuite time="1"><testcase time="1"/></testsuite>',
    ],
)
def test_a_file_that_pytest_did_not_write_is_an_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "junit.xml"
    path.write_text(text)
    with pytest.raises(MeasurementError, match=r"junit\.xml is no JUnit XML of pytest"):
        read_times(path)


def test_figures_of_the_masked_update_and_of_the_run_are_limited() -> None:
    hospital = ["client_sdk/study/a.py", "client_sdk/guard/b.py", "client_sdk/study/c.py"]
    times = {"run_wall_seconds": 90.0, "processor_seconds": 150.0}
    assert limited_by_running(ways(hospital, ["server/api/a.py", "client_sdk/guard/b.py"]), times) == {
        "masked_update_files": 4,
        "masked_update_hospital_returns": 1,
        "masked_update_coordinator_returns": 0,
        "test_minutes": 1.5,
        "test_processor_minutes": 2.5,
    }


@pytest.mark.slow
def test_a_run_of_the_tests_leaves_the_processor_seconds(tmp_path: Path) -> None:
    folder = tmp_path / "tests"
    folder.mkdir()
    (folder / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (folder / "test_work.py").write_text(
        "import os\n\ndef test_work():\n    end = sum(os.times()[:4]) + 0.2\n"
        "    while sum(os.times()[:4]) < end:\n        pass\n"
    )
    path = tmp_path / "times" / "junit.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "1", f"--junitxml={path}", "tests"]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
    _, (case,) = read_times(path)
    assert case.folder == "tests"
    assert case.processor is not None
    assert case.processor >= 0.2


def test_a_record_replaces_its_key(tmp_path: Path) -> None:
    path = tmp_path / RESULTS.relative_to(ROOT)
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"before": {"structure": 1}, "after": {"structure": 2, "old": 3}}))
    parts = {"structure": {"modules": 4}, "way_of_an_update": ways(["client_sdk/study/a.py"], ["server/worker.py"])}
    write_record(tmp_path, "after", parts)
    assert json.loads(path.read_text()) == {"before": {"structure": 1}, "after": parts}
