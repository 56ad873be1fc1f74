"""One comparison of the site policy with what is asked of the hospital."""

from __future__ import annotations

from typing import NamedTuple


class PolicyRule(NamedTuple):
    """One comparison. `code` and `text` are a refusal's."""

    is_met: bool
    code: str
    text: str
