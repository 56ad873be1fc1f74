"""The table of extras says what `pyproject.toml` says, and errors name the extra that a user has to install."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from wardround.extras import EXTRAS, extra_of, packages_of

# Needs an environment of its own: docs/flower.md.
ELSEWHERE = {"flwr"}


def brought_by(extras: Mapping[str, list[str]], name: str) -> set[str]:
    """Packages of an extra, and of the extras that it names."""
    found = {re.split(r"[\[<>=]", text)[0] for text in extras[name]}
    inner = [part for text in extras[name] for part in re.findall(r"^wardround\[(.*)\]", text)]
    return found.union(*(brought_by(extras, one) for part in inner for one in part.split(",")))


def test_every_extra_that_is_named_brings_what_it_is_named_for() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    of_package = packages_distributions()
    for extra in EXTRAS:
        brought = brought_by(project["optional-dependencies"], extra)
        for package in packages_of(extra) - ELSEWHERE:
            # fastapi brings starlette.
            owners = {owner.lower().replace("_", "-") for owner in of_package[package]}
            assert package == "starlette" or owners & brought, (extra, package)


@pytest.mark.parametrize(
    ("missing", "wanted", "extra"),
    [
        ("torch", None, "learning"),
        ("torch._C", "client", "client"),
        ("typst", "operator", "documents"),
        ("vl_convert", "client", "simulation"),
        ("nobody", "client", None),
        (None, None, None),
    ],
)
def test_the_extra_of_the_command_comes_first(missing: str | None, wanted: str | None, extra: str | None) -> None:
    assert extra_of(ModuleNotFoundError("gone", name=missing), wanted) == extra
