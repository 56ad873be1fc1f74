"""What the noised sum of an evaluation says: one file for each form of prediction."""
