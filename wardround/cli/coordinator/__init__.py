"""Commands of the people who run the coordinator."""
