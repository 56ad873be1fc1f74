"""The lower bounds of our dependencies admit no version with a known hole, and the pinned versions none either."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
SAFE: dict[str, dict[str, str]] = tomllib.loads((ROOT / "tests" / "contract" / "minimum_versions.toml").read_text())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def requirements() -> list[Requirement]:
    written = [*PROJECT["dependencies"], *(one for extra in PROJECT["optional-dependencies"].values() for one in extra)]
    return [found for found in map(Requirement, written) if found.name != "wardround"]


def lowest(requirement: Requirement) -> Version:
    (bound,) = [each for each in requirement.specifier if each.operator in (">=", "==")]
    return Version(bound.version)


def admits_a_hole(requirement: Requirement) -> bool:
    entry = SAFE.get(canonicalize_name(requirement.name))
    return entry is not None and lowest(requirement) < Version(entry["version"])


def pinned() -> dict[str, Version]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return {
        canonicalize_name(name): Version(version)
        for name, version in (line.split("==") for line in lines if "==" in line)
    }


@pytest.mark.parametrize("requirement", requirements(), ids=str)
def test_every_dependency_has_a_lower_bound_without_a_known_hole(requirement: Requirement) -> None:
    assert not admits_a_hole(requirement), SAFE[canonicalize_name(requirement.name)]["why"]


def test_a_bound_that_admits_a_hole_would_be_noticed() -> None:
    # As they were.
    for before in ("pillow>=11", "cryptography>=44", "torch>=2.6", "onnx>=1.17", "PyJWT>=2.10"):
        assert admits_a_hole(Requirement(before))
    with pytest.raises(ValueError):
        lowest(Requirement("pillow"))


def test_what_is_installed_meets_the_bounds() -> None:
    installed = pinned()
    for requirement in requirements():
        name = canonicalize_name(requirement.name)
        # Torch comes from an index of its own, by the kind of its device. Flower has an environment of its own.
        assert name in installed or name in ("torch", "flwr"), name
        if name in installed:
            assert installed[name] in requirement.specifier, name


def test_every_entry_is_of_a_dependency_and_says_why() -> None:
    names = {canonicalize_name(requirement.name) for requirement in requirements()}
    assert SAFE.keys() <= names
    for name, entry in SAFE.items():
        assert re.search(r"CVE-\d{4}-\d+|GHSA-|older ones", entry["why"]), name
