"""A study and the documents that travel about it."""
