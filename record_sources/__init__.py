"""Records from where hospitals keep them: databases, FHIR files and workbooks, frozen as named snapshots.

A source fills tables of a working database (`staging`), and a snapshot is written from them. Needs no torch and no
network but the hospital's own database.
"""
