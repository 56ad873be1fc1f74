"""The commands of `wardround` that go through the API, one noun a file."""
