"""Coverage-guided fuzzing of every parser that reads bytes of a peer or a stranger. See `tests.harness.fuzzing.run`."""
