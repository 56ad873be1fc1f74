"""A released model in use: read from its file, asked about new records, scored, exported, followed through a study."""

from client_sdk.released.model import ReleasedModel, load_model

__all__ = ["ReleasedModel", "load_model"]
