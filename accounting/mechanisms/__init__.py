"""The cost of one noised step: divergences, loss distributions, and the way from them to (ε, δ)."""
