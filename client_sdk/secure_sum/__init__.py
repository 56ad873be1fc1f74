"""A hospital's half of the secure sum."""
