"""Studies and their participants."""
