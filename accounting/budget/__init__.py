"""The budget of a study: its limits, its ledger, and whether the next round may begin."""
