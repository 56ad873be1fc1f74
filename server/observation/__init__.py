"""What a process tells of its own work: metrics for Prometheus, traces for OpenTelemetry; nothing unless asked."""
