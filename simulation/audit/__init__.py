"""Attacks on a study's own settings, run on records at hand: what they find, beside what the certificate allows."""
