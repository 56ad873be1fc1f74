"""The text of a service of the operating system that runs `wardround join`: a systemd unit, or a Podman Quadlet.

A value that ends a line would add settings of its own, so that values with control characters are refused.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from client_sdk.errors import ConfigurationError
from wardround.cli.shared.exit_codes import ExitCode

_HOMES = tuple(map(Path, ("/home", "/root", "/run/user")))
# A service has folders of its own in their place.
TEMPORARY = tuple(map(Path, ("/tmp", "/var/tmp")))  # noqa: S108 (they are refused, not used)
# After these the same command ends in the same way until a person has done something.
NO_RESTART = tuple(code for code in ExitCode if code is not ExitCode.DONE and not code.is_passing)
# Work without rights over the machine. MemoryDenyWriteExecute is not among them: oneDNN and CUDA write their kernels.
_HARDENING = """
NoNewPrivileges=yes
UMask=0077
ProtectSystem=strict
PrivateTmp=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged
SystemCallErrorNumber=EPERM
LockPersonality=yes
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
""".strip()
# These need the rights of the system's own manager.
_SYSTEM_HARDENING = """
CapabilityBoundingSet=
AmbientCapabilities=
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
ProtectProc=invisible
""".strip()
_RESTART = f"""
Restart=on-failure
RestartSec=60
RestartPreventExitStatus={" ".join(f"{code:d}" for code in NO_RESTART)}
""".strip()


@dataclass(frozen=True)
class Service:
    """The service of one hospital in one study.

    Attributes:
        study, client: names.
        words: of the command line after the program, paths absolute.
        program: words that start `wardround`, the first one an absolute path.
        program_folders: of the interpreter and its packages.
        home: the hospital's directory.
        written: further folders that are written to.
        read: files and folders that are read.
        environment: variables without secrets.
        environment_file: file of further variables, or None.
        account: (name, user id, group id) of the directory's owner.
        of_user: a service of one person's own manager, not of the system.
        device: of torch.
        image: of the container.
    """

    study: str
    client: str
    words: tuple[str, ...]
    program: tuple[str, ...]
    program_folders: tuple[Path, ...]
    home: Path
    written: tuple[Path, ...]
    read: tuple[Path, ...]
    environment: Mapping[str, str]
    environment_file: Path | None
    account: tuple[str, int, int]
    of_user: bool
    device: str
    image: str

    @property
    def paths(self) -> tuple[Path, ...]:
        """Every path that the service needs."""
        return (self.home, *self.written, *self.read, *self.environment_files)

    @property
    def environment_files(self) -> tuple[Path, ...]:
        """The file of further variables, if there is one."""
        return () if self.environment_file is None else (self.environment_file,)


def quoted(value: str, *, variables: bool = False) -> str:
    """Return a value between quotation marks that systemd reads as it is.

    Args:
        value: any text of one line.
        variables: it stands in a command line, where systemd replaces variables.

    Raises:
        ConfigurationError: the value holds a control character or is no Unicode text.
    """
    require_one_line(value)
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped.replace("$", "$$") if variables else escaped}"'


def require_one_line(value: str) -> None:
    """Raises ConfigurationError for control characters, line ends and what is no Unicode text."""
    if any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in value):
        raise ConfigurationError(
            f"{value!a} holds a line end or another control character, which no service file can hold: rename it"
        )


def systemd_unit(service: Service) -> str:
    """Return a unit for systemd 240 or newer.

    Raises:
        ConfigurationError: a path lies in a folder that the service does not see, or cannot be written down.
    """
    needed = (*service.paths, *service.program_folders)
    _require_lasting(needed)
    system, protected = not service.of_user, "read-only" if _below(needed, _HOMES) else "yes"
    lines = [
        *_head(service),
        *_when(system, "Wants=network-online.target", "After=network-online.target"),
        *_when(system, f"RequiresMountsFor={_list(service.paths)}"),
        "",
        "[Service]",
        *_when(system, f"User={service.account[0]}"),
        f"ExecStart={_command((*service.program, *service.words))}",
        *(f"Environment={quoted(f'{name}={value}')}" for name, value in service.environment.items()),
        *(f"EnvironmentFile={_whole_line(path)}" for path in service.environment_files),
        _RESTART,
        _HARDENING,
        f"ProtectHome={protected}",
        f"ReadWritePaths={_list((service.home, *service.written))}",
        *_when(service.read, f"ReadOnlyPaths={_list(service.read)}"),
        *_when(system and service.device == "cpu", "PrivateDevices=yes"),
        _SYSTEM_HARDENING if system else "PrivateUsers=yes",
    ]
    return "\n".join([*lines, *_install(service)])


def quadlet(service: Service) -> str:
    """Return a container for Podman's generator, which needs Podman 4.5 or newer.

    Raises:
        ConfigurationError: a path holds a character that separates parts of a mount, or the image has no valid name.
    """
    _require_lasting(service.paths)
    if re.fullmatch(r"[A-Za-z0-9._/:@-]+", service.image) is None:
        raise ConfigurationError(f"{service.image!a} is no name of an image, such as localhost/wardround-client:1")
    for path in service.paths:
        if re.fullmatch(r"[\w./@+-]+", str(path)) is None:
            raise ConfigurationError(
                f"{str(path)!a}: a container mounts paths of letters, digits and . / @ + - _ alone: rename it"
            )
    _, user, group = service.account
    lines = [
        *_head(service),
        "",
        "[Container]",
        f"Image={service.image}",
        f"Exec={_command(service.words)}",
        *(["UserNS=keep-id"] if service.of_user else [f"User={user}", f"Group={group}"]),
        *_mounts(service),
        *(f"Environment={_command((f'{name}={value}',))}" for name, value in _container_variables(service).items()),
        *(f"EnvironmentFile={path}" for path in service.environment_files),
        "NoNewPrivileges=true",
        "DropCapability=all",
        "ReadOnly=true",
        "PodmanArgs=--umask=0077",
        *_when(service.device.startswith("cuda"), "AddDevice=nvidia.com/gpu=all"),
        "",
        "[Service]",
        _RESTART,
    ]
    return "\n".join([*lines, *_install(service)])


def _head(service: Service) -> list[str]:
    return [
        "# Written by `wardround site install`. Run it again with --replace to change this file.",
        "[Unit]",
        f"Description=Wardround: {service.client} in study {service.study}",
        # A coordinator that is away for a week is no reason to give up.
        "StartLimitIntervalSec=0",
    ]


def _install(service: Service) -> list[str]:
    target = "default.target" if service.of_user else "multi-user.target"
    return ["", "[Install]", f"WantedBy={target}", ""]


def _when(condition: object, *lines: str) -> tuple[str, ...]:
    return lines if condition else ()


def _mounts(service: Service) -> list[str]:
    written = _outermost((service.home, *service.written))
    read = [path for path in _outermost(service.read) if not _below((path,), written)]
    return [*(f"Volume={path}:{path}:rw,Z" for path in written), *(f"Volume={path}:{path}:ro" for path in read)]


def _container_variables(service: Service) -> dict[str, str]:
    # The image's home belongs to another user than the one that runs here.
    return {"HOME": str(service.home), **service.environment}


def _command(words: Iterable[str]) -> str:
    return " ".join(quoted(word, variables=True) for word in words)


def _list(paths: Iterable[Path]) -> str:
    return " ".join(quoted(str(path)) for path in dict.fromkeys(paths))


def _whole_line(path: Path) -> str:
    """Return a path for a setting that takes its whole line, without quotation marks."""
    text = str(path)
    require_one_line(text)
    # systemd reads every file that fits a pattern.
    if text != text.strip() or re.search(r"[\\*?\[]", text):
        raise ConfigurationError(f"{text!a} holds one of \\ * ? [ or a space at its end: rename it")
    return text.replace("%", "%%")


def _below(paths: Iterable[Path], folders: Iterable[Path]) -> bool:
    listed = tuple(folders)
    return any(path.is_relative_to(folder) for path in paths for folder in listed)


def _outermost(paths: Iterable[Path]) -> list[Path]:
    """Return the paths that lie in no other one of them."""
    unique = list(dict.fromkeys(paths))
    return [path for path in unique if not any(path != parent and path.is_relative_to(parent) for parent in unique)]


def _require_lasting(paths: Iterable[Path]) -> None:
    for path in paths:
        if _below((path,), TEMPORARY):
            raise ConfigurationError(f"{str(path)!a}: a service does not see this folder. Move it elsewhere")
