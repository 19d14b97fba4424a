"""Host memory: aligned allocation, memory of results that serves again, DLPack."""
