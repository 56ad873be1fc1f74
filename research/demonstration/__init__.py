"""How the demonstration's settings were chosen, and how its result varies over seeds."""
