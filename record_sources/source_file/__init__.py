"""The file `source.toml`: where records are, and where a password is kept."""
