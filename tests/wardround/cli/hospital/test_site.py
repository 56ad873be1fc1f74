"""`wardround site`: the service that it writes is the hospital's own `join`, and takes part when it is started."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.factories.commands import AS_WRITTEN, Run, opened, write_records
from tests.factories.hospitals import lax_toml
from tests.factories.live_coordinator import Live
from tests.factories.services import command_line, enrolled_home, settings_of
from wardround.cli.hospital import service_units
from wardround.cli.hospital.site import default_folder
from wardround.cli.main import build

WIDE = {"COLUMNS": "200", "TERM": "dumb"}


@pytest.fixture(autouse=True)
def without_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    # Folders of tests are temporary ones.
    monkeypatch.setattr(service_units, "TEMPORARY", ())
    for name in ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "WARDROUND_CA_FILE", "WARDROUND_CLIENT_HOME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return enrolled_home(tmp_path, "mercy 100% $HOME")


def install(folder: Path, home: Path, *options: str, before: tuple[str, ...] = ("--user",), code: int = 0) -> Result:
    words = ["site", "install", "sepsis", *before, "--folder", str(folder)]
    data = [] if "--data" in options else ["--data", str(folder.parent / "records.csv")]
    done = CliRunner().invoke(build(), [*words, "--", *data, "--home", str(home), *options], env=WIDE)
    assert done.exit_code == code, done.output
    return done


def unit(folder: Path) -> dict[str, list[str]]:
    return settings_of((folder / "wardround-sepsis.service").read_text())


def test_the_command_line_has_whole_paths_and_every_option(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = install(tmp_path / "units", home, "--data", "records.csv", "--patient-column", 'a "b" $c %d', "--lazy")
    words = command_line(unit(tmp_path / "units")["ExecStart"][0])
    assert words[words.index("join") :] == [
        *("join", "sepsis", "--data", str(tmp_path / "records.csv")),
        *("--patient-column", 'a "b" $c %d', "--lazy", "--home", str(home)),
    ]
    assert Path(words[0]).is_absolute()
    assert done.stdout.splitlines()[-4:] == [
        "  systemctl --user daemon-reload",
        "  systemctl --user enable --now wardround-sepsis.service",
        "  loginctl enable-linger        # or the service ends when you log out",
        "  journalctl --user --unit wardround-sepsis.service --follow",
    ]
    assert unit(tmp_path / "units")["ReadOnlyPaths"][0].startswith(service_units.quoted(str(tmp_path / "records.csv")))


def test_a_service_is_not_overwritten_without_a_word(tmp_path: Path, home: Path) -> None:
    units = tmp_path / "units"
    install(units, home)
    (units / "wardround-sepsis.service").write_text("mine")
    assert "add --replace" in install(units, home, code=1).stderr
    assert (units / "wardround-sepsis.service").read_text() == "mine"
    install(units, home, before=("--user", "--replace"))
    assert "ExecStart" in unit(units)
    assert [path.name for path in units.iterdir()] == ["wardround-sepsis.service"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--accept-lost-ledger"], "--accept-lost-ledger is no option of a service"),
        (["--accept-changed-records"], "--accept-changed-records is no option of a service"),
        (["--server", "https://other.example.org"], "--server is no option of a service"),
        (["--once"], "--once is no option of a service"),
        (["--data", "nowhere.csv"], "there is no such file or folder"),
        (["--columns", "nowhere.toml"], "nowhere.toml': there is no such file or folder"),
        (["--patient-column", "a\nExecStart=/bin/sh"], "holds a line end"),
    ],
)
def test_what_a_service_cannot_hold_is_refused(tmp_path: Path, home: Path, options: list[str], text: str) -> None:
    assert text in install(tmp_path / "units", home, *options, code=1).stderr
    assert not (tmp_path / "units").exists()


def test_services_are_written_where_systemd_looks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert default_folder("systemd", user=True) == tmp_path / "systemd" / "user"
    assert default_folder("quadlet", user=True) == tmp_path / "containers" / "systemd"
    assert default_folder("systemd", user=False) == Path("/etc/systemd/system")
    assert default_folder("quadlet", user=False) == Path("/etc/containers/systemd")


def test_join_checks_its_own_options(tmp_path: Path, home: Path) -> None:
    assert "No such option: --dta" in install(tmp_path / "units", home, "--dta", "x", code=2).stderr


def test_a_directory_that_has_not_enrolled_gets_no_service(tmp_path: Path, home: Path) -> None:
    done = CliRunner().invoke(
        build(), ["site", "install", "stroke", "--", "--data", "x", "--home", str(home)], env=WIDE
    )
    assert (done.exit_code, "has not enrolled in study 'stroke'" in done.stderr) == (1, True)


def test_a_password_of_a_proxy_stays_out(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://user:hunter2@proxy.example:3128")
    refused = install(tmp_path / "units", home, code=1)
    assert "--environment-file" in refused.stderr
    assert "hunter2" not in refused.output
    file = tmp_path / "proxy.env"
    file.write_text("HTTPS_PROXY=http://user:hunter2@proxy.example:3128\n")
    file.chmod(0o644)
    named = ("--user", "--environment-file", str(file))
    assert "chmod 600" in install(tmp_path / "units", home, before=named, code=1).stderr
    file.chmod(0o600)
    install(tmp_path / "units", home, before=named)
    found = unit(tmp_path / "units")
    assert (found["EnvironmentFile"], "Environment" in found) == ([str(file)], False)
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    install(tmp_path / "units", home, before=("--user", "--replace"))
    assert unit(tmp_path / "units")["Environment"] == ['"HTTPS_PROXY=http://proxy.example:3128"']


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory to another account")
def test_a_service_of_the_system_runs_as_the_owner_and_never_as_root(tmp_path: Path, home: Path) -> None:
    units = tmp_path / "units"
    assert "belongs to root" in install(units, home, before=(), code=1).stderr
    os.chown(home, 65534, 65534)
    install(units, home, before=())
    assert unit(units)["User"] == ["nobody"]
    assert "belongs to another account" in install(units, home, code=1).stderr


def test_a_container_is_written_for_podman(tmp_path: Path, home: Path) -> None:
    plain = home.rename(tmp_path / "mercy")
    done = install(tmp_path / "units", plain, before=("--user", "--kind", "quadlet"))
    found = settings_of((tmp_path / "units" / "wardround-sepsis.container").read_text())
    assert found["Image"][0].startswith("localhost/wardround-client:")
    assert "systemctl --user start wardround-sepsis.service" in done.stdout


def test_the_page_for_it_is_a_table_or_json(home: Path) -> None:
    words = ["site", "network", "--server", "http://localhost:9"]
    printed = CliRunner().invoke(build(), [*words, "--home", str(home)], env=WIDE)
    assert (printed.exit_code, "this machine opens no port" in printed.stdout) == (0, True)
    rules = json.loads(CliRunner().invoke(build(), [*words, "--json"], env=WIDE).stdout)
    assert (rules[0]["to"], rules[0]["port"]) == ("localhost", "9")


def started(here: Live, words: list[str], variables: list[str]) -> subprocess.CompletedProcess[str]:
    """Start a command line as a service manager would, and let the coordinator work until it ends."""
    ended = threading.Event()

    def work() -> None:
        while not ended.wait(0.05):
            here.work()

    worker = threading.Thread(target=work)
    worker.start()
    try:
        # Nothing of this shell, but where the packages under test are.
        few = {"PYTHONPATH": os.environ.get("PYTHONPATH", ""), "PATH": "/usr/bin:/bin"}
        parts = [shlex.split(each)[0].partition("=") for each in variables]
        environment = few | {name: value for name, _, value in parts}
        return subprocess.run(words, env=environment, cwd="/", capture_output=True, text=True, timeout=300)
    finally:
        ended.set()
        worker.join()


@pytest.mark.slow
def test_the_written_line_takes_part_in_a_study(
    run: Run, here: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "mercy"
    monkeypatch.setenv("WARDROUND_CLIENT_HOME", str(home))
    opened(run, tmp_path)
    (home / "policy.toml").write_text(lax_toml())
    run("study", "start", "sepsis", operator=True)
    odd = write_records(tmp_path / 'records $HOME 100% "x".csv')
    options = ["--data", str(odd), "--patient-column", "patient", *AS_WRITTEN]
    install(tmp_path / "units", home, *options)
    found = unit(tmp_path / "units")
    done = started(here, command_line(found["ExecStart"][0]), found.get("Environment", []))
    assert done.returncode == 0, done.stderr
    assert "the study has ended: max-steps-reached" in done.stdout
