"""Evidence for the limits that are kept by the loss distribution of a whole plan: docs/decisions/fixed-order.md."""
