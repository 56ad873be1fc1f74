"""Bayesian models and the papers' own experiments."""
