"""People at the coordinator: their keys, and the audit log of what they ask for."""
