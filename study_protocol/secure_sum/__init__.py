"""What both sides of the secure sum share."""
