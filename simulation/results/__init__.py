"""The results of simulations: their report, and its chart."""
