"""How honest the intervals of regressions under noise are."""
