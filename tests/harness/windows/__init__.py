"""Windows as the hospital's programs see it, played on Linux."""
