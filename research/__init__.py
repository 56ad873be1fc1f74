"""Experiments, benchmarks and quality checks. Nothing here is shipped."""
