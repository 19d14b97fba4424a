"""Records of what was measured.

record      one record: a kernel, a target, a schedule and its time
lines       records as lines of JSON; transfer: export and import of files of them
database    the database: a SQLite file, or a server; schema: its tables; unwritten: what waits to be written
lookup      the records that compiles use; nearest: those of kernels with near sizes
checks      traces of records, which are not trusted
pack        packages of records
"""
