"""Flower's PyTorch quickstart on a small table, as it is and with a kept budget."""
