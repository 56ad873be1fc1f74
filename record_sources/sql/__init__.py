"""Tables from a hospital's database, by queries of the hospital: read-only, with a timeout, in bounded memory."""

from record_sources.sql.source import SqlSource, sql_source

__all__ = ["SqlSource", "sql_source"]
