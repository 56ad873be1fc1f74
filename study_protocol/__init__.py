"""Protocol that hospitals and the coordinator share. Pure: no web, no database, no clock, no torch."""
