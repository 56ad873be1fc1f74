"""Makes one signed archive that installs Wardround on machines without a network (`docs/offline.md`)."""
