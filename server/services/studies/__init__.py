"""Studies and whoever takes part in them."""
