"""The roster of a study (`wardround.cli.hospital.roster`): hospitals, programs, lacks, and the pinned number."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import segno

from client_sdk.study.pinning import as_digits
from study_protocol.versions import NAMED_PEOPLE, PROTOCOL, program_version
from tests.factories.commands import AS_WRITTEN, Run, finished, opened, write_records
from tests.factories.live_coordinator import Live
from tests.factories.settings import TASK_PARAMETERS

BLOCK = "█"


@pytest.mark.slow
def test_the_roster_is_pinned_only_under_the_fingerprint_that_was_compared(
    here: Live, run: Run, tmp_path: Path
) -> None:
    opened(run, tmp_path)
    roster = json.loads(run("roster", "show", "sepsis", "--json").stdout)
    digits = as_digits(roster["fingerprint"])
    assert digits in run("roster", "show", "sepsis").stdout
    groups = digits.split(" ")
    for wrong in (["0" * 64], [*groups[:-1], "00000"]):
        run("roster", "pin", "sepsis", *wrong, code=4)
    # A slip of the hand is no other roster.
    assert "60 in all, but 55 digits were given" in run("roster", "pin", "sepsis", *groups[:-1], code=1).stderr
    assert "this is none" in run("roster", "pin", "sepsis", "number", code=1).stderr
    assert run("roster", "pin", "sepsis", *groups).stdout == "pinned: mercy\n"
    assert '"pinned"' in (tmp_path / "mercy" / "studies" / "sepsis.json").read_text()


@pytest.mark.slow
def test_the_number_is_shown_as_a_qr_code_too(here: Live, run: Run, tmp_path: Path) -> None:
    opened(run, tmp_path)
    digits = as_digits(json.loads(run("roster", "show", "sepsis", "--json").stdout)["fingerprint"])
    assert BLOCK not in run("roster", "show", "sepsis").stdout
    # Every printed character is two modules, one above the other; light ones are drawn.
    printed = [line for line in run("roster", "show", "sepsis", "--qr").stdout.splitlines() if line[:1] in ("█", "▀")]
    dark = {"█": (0, 0), "▀": (0, 1), "▄": (1, 0), " ": (1, 1)}
    modules = [[dark[mark][half] for mark in line] for line in printed for half in (0, 1)]
    border = 4
    inner = [row[border:-border] for row in modules[border : border + len(modules[0]) - 2 * border]]
    assert inner == [list(row) for row in segno.make_qr(digits.replace(" ", ""), error="m").matrix]


@pytest.mark.slow
def test_an_operator_is_not_told_to_pin(here: Live, run: Run, tmp_path: Path) -> None:
    opened(run, tmp_path)
    asked, here_too = run("roster", "show", "sepsis", operator=True).stdout, run("roster", "show", "sepsis").stdout
    assert "roster pin" not in asked
    assert "asked with an API key, which pins no roster" in asked
    assert "wardround roster pin sepsis" in here_too


@pytest.mark.slow
def test_the_programs_of_all_hospitals_are_shown_and_others_marked(here: Live, run: Run, tmp_path: Path) -> None:
    opened(run, tmp_path)
    older = here.enrol("sepsis", "lake")
    assert here.signed(older, "GET", "/v1/studies/sepsis/budget", protocol=PROTOCOL + 1).status_code == 200
    for operator in (False, True):
        shown = run("roster", "show", "sepsis", operator=operator).stdout
        lines = shown.split("Programs in sepsis")[1].splitlines()
        lake, mercy = (next(line for line in lines if name in line) for name in ("lake", "mercy"))
        assert program_version() in mercy
        assert "differs" not in mercy
        assert "differs from the coordinator's" in lake
        assert f"The study needs protocol {NAMED_PEOPLE}." in shown
    listed = json.loads(run("roster", "show", "sepsis", "--json").stdout)["versions"]
    assert [(site["client"], site["protocol"]) for site in listed["hospitals"]] == [
        ("lake", PROTOCOL + 1),
        ("mercy", PROTOCOL),
    ]
    finding = next(f for f in json.loads(run("doctor", "--json").stdout) if f["check"] == "versions in sepsis")
    assert finding["verdict"] == "note"
    assert "lake: " in finding["text"]


@pytest.mark.slow
@pytest.mark.parametrize("tells", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_hospital_that_lacks_a_column_takes_part_and_tells_it_only_if_its_policy_says_so(
    here: Live, run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture, tells: bool
) -> None:
    parameters = TASK_PARAMETERS | {"column.rate": "0..10; missing=5; site-may-lack"}
    lines = write_records(tmp_path / "whole.csv").read_text().splitlines()
    records = tmp_path / "records.csv"
    records.write_text("\n".join(",".join([*line.split(",")[:1], *line.split(",")[2:]]) for line in lines) + "\n")
    assert records.read_text().startswith("age,ill,patient\n")

    joined = finished(
        run,
        here,
        tmp_path,
        table=records,
        policy=f"tells_lacking_columns = {str(tells).lower()}\n",
        training={"task_parameters": parameters},
    )
    assert joined["rounds_sent"] == 2
    assert "there is no column 'rate' to read" in caplog.text
    assert json.loads(run("roster", "show", "sepsis", "--json").stdout)["lacks"] == {
        "mercy": ["rate"] if tells else None
    }
    shown = run("roster", "show", "sepsis").stdout
    assert "lacks" in shown
    assert ("rate" if tells else "not told") in shown
    # A later policy takes the word back, also when the study has ended.
    policy = tmp_path / "mercy" / "policy.toml"
    policy.write_text(policy.read_text().replace("tells_lacking_columns = true", "tells_lacking_columns = false"))
    run("join", "sepsis", "--data", str(records), "--patient-column", "patient", *AS_WRITTEN, "--json")
    assert json.loads(run("roster", "show", "sepsis", "--json").stdout)["lacks"] == {"mercy": None}


def test_a_roster_has_no_further_column_where_no_column_may_lack(here: Live, run: Run, tmp_path: Path) -> None:
    opened(run, tmp_path)
    assert "lacks" not in run("roster", "show", "sepsis").stdout
    assert "lacks" not in json.loads(run("roster", "show", "sepsis", "--json").stdout)
