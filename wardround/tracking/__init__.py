"""Copies of a study's released results on a tracking server."""
