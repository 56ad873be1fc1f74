"""Commands of a hospital's data scientist: enrol, look at the records, take part."""
