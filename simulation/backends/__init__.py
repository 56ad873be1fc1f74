"""Where the clients' work is done: one after the other, in forked processes, on a cluster, or many at once."""
