"""The secure sum of a round: what clients say, and what the worker does with it."""
