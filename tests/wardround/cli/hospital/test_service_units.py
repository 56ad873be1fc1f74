"""Service units hold every word as it was typed, and nothing can add a setting to them."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from client_sdk.errors import ConfigurationError
from tests.factories.services import command_line, settings_of
from wardround.cli.hospital.service_units import NO_RESTART, Service, quadlet, quoted, systemd_unit

# Every character that means something to systemd, in a value that must arrive unchanged.
ODD = ['a b" c', "it's", "100% %h %%", "$HOME ${HOME} $$", "back\\slash\\n", ";", "ü—", "", "-x", "#no comment"]


def service(**changes: Any) -> Service:
    chosen: dict[str, Any] = {
        "study": "sepsis",
        "client": "mercy",
        "words": ("join", "sepsis", "--data", "/srv/records.csv", "--home", "/srv/wardround"),
        "program": ("/bin/echo",),
        "program_folders": (Path("/opt/wardround"),),
        "home": Path("/srv/wardround"),
        "written": (),
        "read": (Path("/srv/records.csv"),),
        "environment": {},
        "environment_file": None,
        "account": ("mercy", 1234, 1235),
        "of_user": False,
        "device": "auto",
        "image": "localhost/wardround-client:1",
    }
    return Service(**chosen | changes)


@pytest.mark.parametrize("word", ODD)
def test_a_word_reaches_the_program_unchanged(word: str) -> None:
    line = settings_of(systemd_unit(service(words=("join", word))))["ExecStart"]
    assert command_line(line[0]) == ["/bin/echo", "join", word]


@pytest.mark.parametrize("value", ["a\nExecStart=/bin/sh", "a\rb", "a\0b", "a\x1bb", "a\u2028b", "a\udcffb"])
@pytest.mark.parametrize("field", ["words", "home", "read", "written", "environment"])
def test_no_value_begins_a_line_of_its_own(value: str, field: str) -> None:
    path = Path("/srv") / value
    changed: Any = {
        "words": ("join", value),
        "home": path,
        "read": (path,),
        "written": (path,),
        "environment": {"HTTPS_PROXY": value},
    }[field]
    for write in (systemd_unit, quadlet):
        with pytest.raises(ConfigurationError) as refused:
            write(service(**{field: changed}))
        assert "\n" not in str(refused.value)


def test_paths_and_variables_are_written_as_systemd_reads_them() -> None:
    odd = Path('/srv/a "b" 100%')
    found = settings_of(systemd_unit(service(home=odd, environment={"NO_PROXY": "$x %y"}, read=(odd / "r.csv",))))
    assert found["ReadWritePaths"] == ['"/srv/a \\"b\\" 100%%"']
    assert found["ReadOnlyPaths"] == ['"/srv/a \\"b\\" 100%%/r.csv"']
    # systemd replaces no variables in this setting.
    assert found["Environment"] == ['"NO_PROXY=$x %%y"']


def test_a_service_has_few_rights_and_starts_again_only_where_that_helps() -> None:
    found = settings_of(systemd_unit(service(device="cpu")))
    assert found["User"] == ["mercy"]
    assert found["CapabilityBoundingSet"] == [""]
    for name in ("NoNewPrivileges", "PrivateTmp", "ProtectHome", "PrivateDevices", "RestrictNamespaces"):
        assert found[name] == ["yes"], name
    assert (found["ProtectSystem"], found["UMask"]) == (["strict"], ["0077"])
    assert found["Restart"] == ["on-failure"]
    assert found["RestartPreventExitStatus"] == ["1 2 3 4 6"]
    assert all(code not in NO_RESTART for code in (0, 5, 75, 130))


def test_a_gpu_and_a_home_that_are_needed_stay_visible() -> None:
    found = settings_of(systemd_unit(service(home=Path("/home/mercy/wardround"))))
    assert found["ProtectHome"] == ["read-only"]
    assert "PrivateDevices" not in found


def test_a_service_of_a_user_asks_for_nothing_that_only_the_system_may() -> None:
    found = settings_of(systemd_unit(service(of_user=True)))
    assert not {"User", "CapabilityBoundingSet", "RequiresMountsFor", "Wants", "PrivateDevices"} & found.keys()
    assert (found["PrivateUsers"], found["WantedBy"]) == (["yes"], ["default.target"])


@pytest.mark.parametrize("field", ["home", "program_folders"])
def test_a_folder_that_a_service_does_not_see_is_refused(field: str) -> None:
    path: Any = Path("/tmp/wardround")
    with pytest.raises(ConfigurationError, match="does not see this folder"):
        systemd_unit(service(**{field: path if field == "home" else (path,)}))


def test_a_file_of_variables_is_named_as_a_whole_line() -> None:
    found = settings_of(systemd_unit(service(environment_file=Path("/srv/my 100%.env"))))
    assert found["EnvironmentFile"] == ["/srv/my 100%%.env"]
    for odd in ("/srv/a\\", "/srv/a ", "/srv/*.env", "/srv/[ab].env", "/srv/a?"):
        with pytest.raises(ConfigurationError, match="rename it"):
            systemd_unit(service(environment_file=Path(odd)))


def test_a_container_mounts_what_it_needs_and_no_more() -> None:
    read = (Path("/srv/records.csv"), Path("/srv/wardround/columns.toml"))
    found = settings_of(quadlet(service(read=read, environment={"NO_PROXY": "a$b"})))
    assert found["Volume"] == ["/srv/wardround:/srv/wardround:rw,Z", "/srv/records.csv:/srv/records.csv:ro"]
    assert (found["User"], found["Group"]) == (["1234"], ["1235"])
    assert (found["ReadOnly"], found["NoNewPrivileges"], found["DropCapability"]) == (["true"], ["true"], ["all"])
    assert command_line(found["Exec"][0])[:2] == ["join", "sepsis"]
    assert [command_line(line)[0] for line in found["Environment"]] == ["HOME=/srv/wardround", "NO_PROXY=a$b"]
    assert found["RestartPreventExitStatus"] == ["1 2 3 4 6"]
    own = settings_of(quadlet(service(of_user=True, device="cuda")))
    assert (own["UserNS"], own["AddDevice"], "User" in own) == (["keep-id"], ["nvidia.com/gpu=all"], False)


@pytest.mark.parametrize("image", ["a\nExec=sh", "a b", "", "a%h", "$HOME"])
def test_an_image_has_a_name(image: str) -> None:
    with pytest.raises(ConfigurationError, match="is no name of an image"):
        quadlet(service(image=image))


@pytest.mark.parametrize("path", ["/srv/a:ro", "/srv/a b", "/srv/a,b", "/srv/a%h", "/srv/$HOME", '/srv/"a"'])
def test_a_path_that_a_mount_would_split_is_refused(path: str) -> None:
    with pytest.raises(ConfigurationError, match="rename it"):
        quadlet(service(home=Path(path)))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
@pytest.mark.parametrize("of_user", [False, True])
def test_systemd_finds_no_fault(tmp_path: Path, of_user: bool) -> None:
    chosen = service(of_user=of_user, words=("join", *ODD), home=Path("/srv/a b 100%"), account=("daemon", 1, 1))
    unit = tmp_path / "wardround-sepsis.service"
    unit.write_text(systemd_unit(replace(chosen, environment={"NO_PROXY": "a b"})))
    done = subprocess.run(
        ["systemd-analyze", "--man=no", *(["--user"] if of_user else []), "verify", str(unit)],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(tmp_path)},
    )
    assert (done.returncode, done.stdout, re.sub(r".*sysinit.*\n", "", done.stderr)) == (0, "", "")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
def test_systemd_rates_the_service_as_little_exposed(tmp_path: Path) -> None:
    unit = tmp_path / "wardround-sepsis.service"
    unit.write_text(systemd_unit(service(device="cpu", account=("daemon", 1, 1))))
    # In tenths: 2 of 10.
    words = ["systemd-analyze", "--no-pager", "security", "--offline=true", "--threshold=20", str(unit)]
    done = subprocess.run(words, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"})
    assert done.returncode == 0, done.stdout[-500:] + done.stderr


def _generator() -> str | None:
    places = ("/usr/libexec/podman/quadlet", "/usr/lib/systemd/system-generators/podman-system-generator")
    return next((place for place in places if Path(place).exists()), None)


@pytest.mark.skipif(_generator() is None, reason="Podman's generator of units is not installed")
def test_podman_finds_no_fault(tmp_path: Path) -> None:
    (tmp_path / "wardround-sepsis.container").write_text(quadlet(service()))
    done = subprocess.run(
        [str(_generator()), "-dryrun"], capture_output=True, text=True, env={"QUADLET_UNIT_DIRS": str(tmp_path)}
    )
    assert done.returncode == 0, done.stderr
    assert "wardround-client:1" in done.stdout


def test_quotation_marks_alone_do_not_double_a_dollar_sign() -> None:
    assert (quoted("$a"), quoted("$a", variables=True)) == ('"$a"', '"$$a"')
