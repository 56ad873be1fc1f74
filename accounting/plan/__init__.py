"""What both sides of the wire must agree on before round 1: the plan of a study's budget, and what rounds report."""
