"""Readings of the noised sum of an evaluation, one file for each form of prediction."""
