"""Studies and measurements of this repository. Nothing in here is shipped."""
