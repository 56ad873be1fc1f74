"""Files that mean the same on every system: locks, durable writes, and files of their owner alone."""
