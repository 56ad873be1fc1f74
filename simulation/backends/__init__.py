"""The backends of the clients' work: one after the other, in forked processes, on a cluster, or many at once."""
