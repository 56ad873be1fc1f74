"""Every kind of source that a description may name has its function, and every source has its kind."""

from __future__ import annotations

import importlib
from typing import get_args

from record_sources.source_file.description import SourceDescription
from record_sources.sources import SOURCES


def test_every_kind_of_a_description_has_its_function() -> None:
    descriptions = get_args(SourceDescription)
    assert set(SOURCES) == {get_args(each.model_fields["kind"].annotation)[0] for each in descriptions}
    for place in SOURCES.values():
        module, _, function = place.partition(":")
        assert callable(importlib.import_module(module).__dict__[function])
