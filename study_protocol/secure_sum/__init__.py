"""Shared part of the secure sum: both sides import it."""
