"""What is wrong with the layout of a page in a browser, computed from the boxes of its elements."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

# In pixels: boxes of letters are a little larger than what is drawn of them.
_SLACK = 1
# WCAG 2.2, success criterion 2.5.8: what is touched is at least so high and wide, unless it stands within a sentence.
_MIN_TARGET = 24

_FAULTS = Path(__file__).with_suffix(".js").read_text()


def faults(page: Any, *, phone: bool) -> list[str]:
    """Return overflow, labels of charts that touch each other or are cut off and, on a phone, small targets."""
    return cast("list[str]", page.evaluate(_FAULTS, [_SLACK, _MIN_TARGET, phone]))
