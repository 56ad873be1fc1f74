"""Bytes on the wire: tensors, signatures, canonical JSON."""
