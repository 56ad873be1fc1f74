"""The group `wardround site`: `join` as a service of the operating system, and the page for a hospital's IT."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from client_sdk.api.config import load as load_settings
from client_sdk.errors import ConfigurationError
from wardround.cli.shared.shared import AsJson, Home, Server, StudyName, plain_errors, print_json, say, table
from wardround.installation import version

JoinOptions = Annotated[list[str], typer.Argument(help="after -- the options of `wardround join`, such as --data FILE")]
Kind = Annotated[
    Literal["systemd", "quadlet"], typer.Option(help="a systemd unit, or a container for Podman's systemd generator")
]
OfUser = Annotated[bool, typer.Option("--user", help="a service of your own account, not of the system")]
Folder = Annotated[Path | None, typer.Option(help="folder to write into. Default: the one that systemd reads")]
Image = Annotated[
    str | None, typer.Option(help="with --kind quadlet: image of the container. Default: the one of this version")
]
EnvironmentFile = Annotated[
    Path | None, typer.Option(help="file with further variables of the service, such as a proxy with a password")
]
Replace = Annotated[bool, typer.Option("--replace", help="replace the service of this study that is there")]


def install(
    study: StudyName,
    join_options: JoinOptions,
    kind: Kind = "systemd",
    user: OfUser = False,
    folder: Folder = None,
    image: Image = None,
    environment_file: EnvironmentFile = None,
    replace: Replace = False,
) -> None:
    """Write a service that runs `wardround join` with few rights, and print how to start it. It starts nothing."""
    from wardround.cli.hospital.service_of_join import service_of_join
    from wardround.cli.hospital.service_units import quadlet, systemd_unit

    container = image or f"localhost/wardround-client:{version()}"
    with plain_errors():
        service = service_of_join(study, join_options, of_user=user, image=container, environment_file=environment_file)
        text, suffix = (systemd_unit(service), "service") if kind == "systemd" else (quadlet(service), "container")
        path = (folder or default_folder(kind, user)).absolute() / f"wardround-{study}.{suffix}"
        _write(path, text, replace=replace)
        say(f"written: {path}\nnext:")
        for line in _next_steps(f"wardround-{study}.service", kind, user):
            say(f"  {line}")


def network(server: Server = None, home: Home = None, as_json: AsJson = False) -> None:
    """Print what a hospital's IT has to allow: address, port, proxy and certificate. One request is sent."""
    from client_sdk.study.network_needs import network_needs

    with plain_errors():
        settings = load_settings()
        needs = network_needs(settings, server=server, home=home)
    if as_json:
        print_json([dict(zip(needs.heads, rule, strict=True)) for rule in needs.rules])
        return
    table("Network of Wardround at this hospital", list(needs.heads), [list(rule) for rule in needs.rules])
    for remark in needs.remarks:
        say(f"- {remark}")


def default_folder(kind: str, user: bool) -> Path:
    """Return the folder from which systemd reads services of this kind."""
    folder = "systemd/user" if kind == "systemd" else "containers/systemd"
    if user:
        return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / folder
    return Path("/etc/systemd/system" if kind == "systemd" else "/etc/containers/systemd")


def _write(path: Path, text: str, *, replace: bool) -> None:
    """Write the file, whole or not at all.

    Raises:
        ConfigurationError: it is there and must not be replaced, or this account may not write there.
    """
    unfinished = path.with_name(f".{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(path) and not replace:
            raise ConfigurationError(f"{path} is there already: add --replace to write it anew")
        unfinished.unlink(missing_ok=True)
        with unfinished.open("x", encoding="utf-8") as file:
            os.chmod(file.fileno(), 0o644)
            file.write(text)
        unfinished.replace(path)
    except PermissionError as error:
        raise ConfigurationError(f"{path} cannot be written: run this as root, or add --user") from error


def _next_steps(name: str, kind: str, user: bool) -> list[str]:
    manager, journal = ("systemctl --user", "journalctl --user") if user else ("systemctl", "journalctl")
    lines = [f"{manager} daemon-reload"]
    # A container's service is made at each start of the machine and cannot be enabled by hand.
    lines.append(f"{manager} enable --now {name}" if kind == "systemd" else f"{manager} start {name}")
    if user:
        lines.append("loginctl enable-linger        # or the service ends when you log out")
    return [*lines, f"{journal} --unit {name} --follow"]
