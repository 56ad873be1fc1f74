"""The charts' library, Vega with Vega-Lite and Vega-Embed, as one script out of the wheel `vl-convert-python`.

It is made once: when the wheel of Wardround is built, or in a checkout when the coordinator starts first. These sources
do not contain it, and an installed wheel needs no other source. Standard library only, because the build of the wheel
runs this file without other packages.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import os
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

BUNDLE = Path(__file__).parent / "bundle" / "charts.js.gz"
# Only the functions that the page calls, so that the bundler leaves out the rest.
_SNIPPET = "window.vegaEmbed = vegaEmbed;"


@dataclass(frozen=True)
class Bundle:
    """The script, compressed. Its name changes with its content, so that browsers may keep it for ever."""

    compressed: bytes

    @cached_property
    def name(self) -> str:
        return f"charts-{hashlib.sha256(self.compressed).hexdigest()[:16]}.js"

    @property
    def script(self) -> bytes:
        """Return the script for the rare browser that does not say that it takes gzip."""
        return gzip.decompress(self.compressed)


def find_bundle(path: Path = BUNDLE) -> Bundle | None:
    """Return the script, made now if need be. None if it is missing and `vl-convert-python` is not installed."""
    if not path.is_file():
        if importlib.util.find_spec("vl_convert") is None:
            return None
        make_bundle(path)
    return Bundle(path.read_bytes())


def make_bundle(path: Path = BUNDLE) -> None:
    """Write the script, which takes two seconds. Several processes may do it at once.

    Raises:
        ImportError: `vl-convert-python` is not installed.
    """
    import vl_convert

    script: str = vl_convert.javascript_bundle(_SNIPPET)
    path.parent.mkdir(exist_ok=True)
    # Without a time in it: the same script has the same bytes, and so the same name.
    compressed = gzip.compress(script.encode(), 9, mtime=0)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(compressed)
    # NamedTemporaryFile makes it readable by its owner alone.
    os.chmod(file.name, 0o644)
    os.replace(file.name, path)
