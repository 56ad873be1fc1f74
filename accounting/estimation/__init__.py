"""From what was seen of some records to bounds that hold for the population."""
