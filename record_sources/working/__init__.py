"""The working database of a snapshot, and how rows get into it."""
