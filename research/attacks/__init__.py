"""Attacks on released numbers, as evidence for their guarantees."""
