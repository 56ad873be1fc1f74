"""The programs that hospitals and operators run. Its public names are imported from `wardround`."""
