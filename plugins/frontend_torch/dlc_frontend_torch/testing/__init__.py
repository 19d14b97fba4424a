"""Networks of torch for tests, documents and benchmarks."""
