"""The agreement of both sides of the wire before round 1: the plan of a study's budget, and the reports of rounds."""
