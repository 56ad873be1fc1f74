"""Composition: what many steps cost together, in each definition."""
