"""What hospitals and operators run: `wardround` is where its public names are imported from."""
