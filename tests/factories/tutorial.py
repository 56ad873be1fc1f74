"""What a reader of docs/tutorial.md types and saves, as a script."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text()
_BLOCK = re.compile(r"(?:Save this as `([^`]+)`:\n\n)?^```(\w+)\n(.*?)^```", re.M | re.S)
_ADDRESS = "127.0.0.1:8000"


def tutorial_lines(page: str, port: int) -> list[str]:
    """Return the lines of bash of a part of the page, in its order. The environment is there already."""
    lines = list[str]()
    for name, language, text in _BLOCK.findall(page.replace(_ADDRESS, f"127.0.0.1:{port}")):
        if name:
            lines += [f"cat > {name} <<'END_OF_FILE'", text.rstrip("\n"), "END_OF_FILE"]
            continue
        assert language == "console", "a block that is neither saved nor typed"
        typed = [line.removeprefix("$ ") for line in text.splitlines()]
        lines += [line for line in typed if "wardround-env" not in line and not line.startswith("pip ")]
    return lines
