"""A hospital's part in a study: enrolment, rounds, what it believes and what it tells."""
