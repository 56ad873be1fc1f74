"""Measurements of synthetic records: quality of tables and models, coverage of intervals, the forecast."""
