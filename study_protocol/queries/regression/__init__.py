"""Parts of the kind `glm`: its design, its families, its steps, and what is read off their noised sums."""
