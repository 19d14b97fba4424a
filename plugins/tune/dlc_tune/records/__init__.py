"""Records of what was measured.

record      one record: a kernel, a target, a schedule and its time
lines       records as lines of JSON: files, export and import
database    the database: a SQLite file, or a server
lookup      the records that compiles use
"""
