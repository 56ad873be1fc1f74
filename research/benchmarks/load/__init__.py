"""A load generator that signs as hospitals do, for `python -m research.benchmarks.coordinator` and other benchmarks."""
