"""Fuzzers: changed inputs of every way into dlc, each in a worker process that may die.

    python -m tests.fuzz models --runs 10000 --seed 7      # or another target, or all
    python -m tests.fuzz models --replay FILE --rng TEXT   # one finding
    python -m tests.fuzz.guided scripts --runs 10000       # guided by coverage, if Atheris is installed

A result or a `DlcError` is right. A death, a hang, any other exception and a wrong result are findings: each
is shrunk and written to `build/fuzz/TARGET`, once for each place in the code.

A target is a module of `tests/fuzz/targets`:

    SECONDS: float                                     the limit of a case
    def seeds() -> list[bytes]                         valid inputs; files of `corpus/TARGET` are more of them
    def mutate(rng, data, seeds) -> bytes              a change
    def check(data, rng) -> str                        use the input; returns the outcome in a word
    def parts(data) -> Iterator[bytes]                 smaller inputs, for shrinking

Equal seeds give equal cases. `corpus/` has inputs that found a defect; the tests run all of them.
"""
