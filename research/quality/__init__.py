"""Measurements of the source text, and the check that holds them at what was reached."""
