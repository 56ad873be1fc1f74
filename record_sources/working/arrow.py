"""The package pyarrow, which comes without annotations."""

from __future__ import annotations

from typing import Any, cast

import pyarrow  # pyright: ignore[reportMissingTypeStubs]
import pyarrow.compute  # pyright: ignore[reportMissingTypeStubs]
import pyarrow.parquet  # pyright: ignore[reportMissingTypeStubs]

pa: Any = cast("Any", pyarrow)
pc: Any = cast("Any", pyarrow.compute)
pq: Any = cast("Any", pyarrow.parquet)
