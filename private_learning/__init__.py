"""Private learning on one machine: records, tasks, per-record gradients, training. No network."""
