"""A hospital's protection against any coordinator: its policy, its ledger, its own budget."""
