"""Snapshots: how they are written, and what the hospital's ledger keeps of them."""
