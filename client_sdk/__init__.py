"""The programs that hospitals and study leads run. Its public names are imported from `wardround`."""
