"""A load generator that signs as hospitals do, for one version of the coordinator: `python -m
research.benchmarks.coordinator`.

Modules here import one another by relative names, and of this project only what each version has itself: run as
`load.side` with another checkout first on the path, they drive that version with its own SDK.
"""
