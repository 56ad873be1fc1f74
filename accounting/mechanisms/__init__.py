"""What one noised step costs: divergences, loss distributions, and the way from them to (ε, δ)."""
