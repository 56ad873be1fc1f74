"""Accuracy against ε on real data, and the settings that are recommended."""
