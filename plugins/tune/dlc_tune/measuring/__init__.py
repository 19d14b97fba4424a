"""Building and running of candidates in processes of their own, here or on a cluster.

job        what is measured, what comes out, and what a measurer is
local      the measurer of this machine: builder and runner processes
kernel     the model of one kernel, with inputs (values)
build      from a job to an artefact
execute    runs of an artefact
comparing  interleaved comparison of two artefacts (noise: repeats of one)
vendor     a vendor's own measure in place of the clock
cores      the cores of builders and runners
process    a process that is replaced when it crashes (worker: its tasks)
cluster    the measurer of a Dask cluster (announced: the targets of workers; cluster_sites: those that fit)
"""
