"""A service from the options of `wardround join`: checked as `join` checks them, with whole paths and no secret."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import typer
from typer.main import get_command

from client_sdk.api.config import load as load_settings
from client_sdk.errors import ConfigurationError
from client_sdk.identity import Identity
from client_sdk.study.snapshot_records import find_records
from wardround.cli.hospital.hospital import join
from wardround.cli.hospital.service_units import Service
from wardround.cli.shared.shared import typed_words

# What a person decides once is no setting of a service that starts again and again.
_DECIDED_ONCE = {
    "accept_lost_ledger": "start `wardround join` with it once yourself",
    "accept_changed_records": "start `wardround join` with it once yourself, or set changed_records in the policy",
    "server": "start `wardround join` with it once yourself. The new address is kept",
    "as_name": "a service is no person, and agrees to nothing where several people decide",
    "once": "a service stays in the study",
    "wait": "it belongs to --once, and a service stays in the study",
}
_VARIABLES = ("WARDROUND_CA_FILE", "WARDROUND_ALLOW_HTTP")
_PROXY_VARIABLES = ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy")


def service_of_join(
    study: str, options: Sequence[str], *, of_user: bool, image: str, environment_file: Path | None
) -> Service:
    """Return the service that runs `wardround join STUDY OPTIONS` from this folder, with this environment.

    Raises:
        typer.BadParameter: `join` does not take the options. Other errors of usage come likewise.
        ConfigurationError: a file is missing, an option belongs to one start, the directory is not enrolled in the
            study or belongs to an unfit account, or a variable holds a password.
    """
    if os.name == "nt":
        raise ConfigurationError("Windows has no systemd. Start `wardround join` with the task scheduler")
    context = _context(study, options)
    home = _whole(context.params["home"] or load_settings().client_home)
    membership = Identity.open(home).membership(study)
    read, written = _make_files_whole(context.params, home)
    environment = _environment(os.environ, has_file=environment_file is not None)
    read += [_existing(environment[name]) for name in _VARIABLES[:1] if name in environment]
    return Service(
        study=study,
        client=membership.client,
        words=("join", *typed_words(context, {"home"}), "--home", str(home)),
        program=_program(),
        program_folders=(_whole(sys.prefix), _whole(sys.base_prefix)),
        home=home,
        written=tuple(written),
        read=tuple(read),
        environment=environment,
        environment_file=None if environment_file is None else _secret_file(environment_file),
        account=_account(home, of_user=of_user),
        of_user=of_user,
        device=context.params["device"],
        image=image,
    )


def _context(study: str, options: Sequence[str]) -> typer.Context:
    app = typer.Typer(add_completion=False)
    app.command("join")(join)
    context: Any = get_command(app).make_context("join", [study, *options])
    for name, advice in _DECIDED_ONCE.items():
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise ConfigurationError(
                f"--{name.removesuffix('_name').replace('_', '-')} is no option of a service: {advice}"
            )
    return context


def _make_files_whole(values: dict[str, Any], home: Path) -> tuple[list[Path], list[Path]]:
    """Replace the paths of options by whole ones. Return what is read, and the folders that are written to."""
    records = find_records(home, Path(values["data"]), values["patient_column"])
    if Path(values["data"]).exists():
        # Otherwise it is the name of a snapshot, whose digest is checked at every start.
        values["data"] = _whole(values["data"])
    read = [_existing(records.path)]
    for name in ("columns", "backbone", "backbone_program", "policy"):
        if values[name] is not None:
            values[name] = _existing(values[name])
            # A list of patients who objected lies beside the policy.
            read.append(values[name].parent if name == "policy" else values[name])
    if values["events"] is None:
        return read, []
    values["events"] = _whole(values["events"])
    return read, [_existing(values["events"].parent)]


def _whole(path: str | Path) -> Path:
    # Links stay as they are: what they lead to may change between two starts.
    return Path(os.path.abspath(path))


def _existing(path: str | Path) -> Path:
    whole = _whole(path)
    if not whole.exists():
        raise ConfigurationError(f"{str(whole)!a}: there is no such file or folder")
    return whole


def _secret_file(path: Path) -> Path:
    whole = _existing(path)
    if whole.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigurationError(f"{str(whole)!a} may be read by others: chmod 600 it")
    return whole


def _program() -> tuple[str, ...]:
    script = _whole(sys.executable).with_name("wardround")
    return (str(script),) if script.exists() else (str(_whole(sys.executable)), "-m", "wardround.cli.main")


def _environment(variables: Mapping[str, str], *, has_file: bool) -> dict[str, str]:
    """Return the variables of this shell that the service needs. has_file: a file has the proxy's."""
    names = _VARIABLES if has_file else (*_VARIABLES, *_PROXY_VARIABLES)
    settings = {name: variables[name] for name in names if variables.get(name)}
    for name in _PROXY_VARIABLES[:2]:
        address = settings.get(name, "")
        if "@" in (urlsplit(address if "://" in address else f"//{address}").netloc):
            raise ConfigurationError(
                f"{name} holds a password, and every account of this machine may read a service. Write the line "
                f"{name}=… into a file with mode 600, and name it with --environment-file"
            )
    if "WARDROUND_CA_FILE" in settings:
        settings["WARDROUND_CA_FILE"] = str(_whole(settings["WARDROUND_CA_FILE"]))
    return settings


def _account(home: Path, *, of_user: bool) -> tuple[str, int, int]:
    """Return name, user id and group id of the directory's owner, who runs the service."""
    import pwd

    owner = home.stat()
    if of_user and owner.st_uid != os.getuid():
        raise ConfigurationError(f"{str(home)!a} belongs to another account: leave --user out")
    if owner.st_uid == 0 and not of_user:
        raise ConfigurationError(
            f"{str(home)!a} belongs to root, and the service runs as the owner. Give it to an account of its own: "
            "useradd --system wardround, then chown -R wardround: the directory"
        )
    try:
        name = pwd.getpwuid(owner.st_uid).pw_name
    except KeyError:
        name = ""
    is_plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]*", name) is not None
    return (name if is_plain else str(owner.st_uid), owner.st_uid, owner.st_gid)
