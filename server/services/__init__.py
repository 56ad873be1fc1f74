"""Use cases of the coordinator: plain functions of a `Coordinator` and a request, one named transaction each."""
