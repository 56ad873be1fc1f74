"""Randomness that privacy rests on: its source, exact noise, coins."""
