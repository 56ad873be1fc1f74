"""A closed-form model of records, and records drawn from it, from noised tables alone."""
