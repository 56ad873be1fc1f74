"""The error of every law."""

from __future__ import annotations


class LawBroken(Exception):
    """The text says which law, in which round."""
