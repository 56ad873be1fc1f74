"""Synthetic records: the public rule of a study's questions, and what is made of their signed answers."""
