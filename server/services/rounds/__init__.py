"""One round, from opening to release."""
