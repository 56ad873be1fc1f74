"""Service units read as systemd's manual says: settings by name, and a command line with its quotation resolved."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from client_sdk.identity import Identity, Membership
from study_protocol.wire.signing import encode_public_key
from tests.factories.commands import write_records

_WORD = re.compile(r'"((?:[^"\\]|\\.)*)"')


def enrolled_home(folder: Path, name: str = "mercy") -> Path:
    """A hospital's directory that has enrolled in `sepsis`, and the table records.csv beside it."""
    identity = Identity.create(folder / name)
    key = encode_public_key(identity.key.public_key())
    url = "https://study.example.org"
    identity.remember(Membership(study="sepsis", client="mercy", url=url, origin=url, coordinator_key=key))
    write_records(folder / "records.csv")
    return identity.directory


def settings_of(text: str) -> dict[str, list[str]]:
    """Return the values of each setting in the order of the file. Comments and sections are left out."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for line in text.split("\n"):
        if line and line[0] not in "#;[":
            name, _, value = line.partition("=")
            assert re.fullmatch("[A-Za-z]+", name), line
            found[name].append(value)
    return dict(found)


def command_line(value: str) -> list[str]:
    """Return the words of a command line whose words are all between quotation marks."""
    assert re.fullmatch(rf"{_WORD.pattern}( {_WORD.pattern})*", value), value
    return [_resolved(match[1]) for match in _WORD.finditer(value)]


def _resolved(word: str) -> str:
    plain = re.sub(r"\\(.)", r"\1", word)
    assert not re.search(r"(?<!%)(?:%%)*%(?!%)", plain), f"systemd would replace a specifier in {word}"
    assert not re.search(r"(?<!\$)(?:\$\$)*\$(?!\$)", plain), f"systemd would replace a variable in {word}"
    return plain.replace("%%", "%").replace("$$", "$")
