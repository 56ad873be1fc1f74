"""The error of records that cannot be used."""


class DataError(ValueError):
    """Records that cannot be trained on. The text names what is wrong and where, never whose."""
