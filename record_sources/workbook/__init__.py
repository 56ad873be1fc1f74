"""Workbooks of Excel and LibreOffice: one sheet, whose faults are counted."""

from record_sources.workbook.source import WorkbookSource, workbook_source

__all__ = ["WorkbookSource", "workbook_source"]
