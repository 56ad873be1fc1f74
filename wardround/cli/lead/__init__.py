"""Commands of a study's lead: plan and run a study, ask questions, hand out its results."""
