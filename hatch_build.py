"""Makes the dashboard's charts library when the wheel is built, so that whoever installs it needs nothing more."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

BUNDLE = "server/web/bundle/charts.js.gz"


class ChartsLibrary(BuildHookInterface):  # pyright: ignore[reportMissingTypeArgument] - hatchling's own is untyped
    """Adds the script to the wheel; an installation in place gets it into the checkout, where git ignores it."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        path = Path(self.root) / BUNDLE
        if version == "editable" and path.is_file():
            return
        try:
            runpy.run_path(str(Path(self.root) / "server" / "web" / "bundle.py"))["make_bundle"](path)
        except ImportError:
            if version != "editable":
                raise
            # The coordinator says what to install when it starts.
            return
        if version != "editable":
            build_data["force_include"][str(path)] = BUNDLE
