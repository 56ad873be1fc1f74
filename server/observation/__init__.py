"""Observation of a process: metrics for Prometheus and traces for OpenTelemetry, both off by default."""
