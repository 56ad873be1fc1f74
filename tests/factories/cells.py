"""Cells as hypothesis draws them, and how their texts may be written."""

from __future__ import annotations

from hypothesis import strategies as st

from study_protocol.cells import Spelling

NUMBERS = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False), st.decimals(allow_nan=False)
)
CELLS = st.one_of(
    st.none(),
    st.booleans(),
    NUMBERS,
    st.dates(),
    st.text(),
    st.sampled_from(["NA", "0744", "744", "1E1", "1,234", "1.234", "3.0", "true", "2020-01-05", "5.1.2020", "-0"]),
)
SPELLINGS = st.builds(Spelling, st.sampled_from([None, "point", "comma"]), st.sampled_from([None, "dmy", "mdy"]))
