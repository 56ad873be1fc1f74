"""The command line, one folder for each role."""
