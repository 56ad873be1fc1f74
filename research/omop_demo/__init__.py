"""The patients of the eICU demo as an OMOP database, as FHIR files, as a workbook and as CSV.

Real patients (ODbL), read from the data folder and never committed. Concept ids are published ones, each with its
source in `concepts.csv` and `relations.csv`. `codes.csv` maps the codes of eICU to them. A hospital brings its own
vocabulary.
"""
