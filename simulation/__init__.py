"""Studies within one process: hospitals' own code and the coordinator's pure functions, without network or database."""
