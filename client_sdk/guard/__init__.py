"""What a hospital holds against any coordinator: its policy, its ledger, its own budget."""
