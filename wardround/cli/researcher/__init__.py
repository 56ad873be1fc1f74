"""Commands of a privacy researcher: simulate a study, use a released model."""
