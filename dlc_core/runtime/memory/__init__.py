"""Host memory: aligned allocation, reuse of result memory, DLPack."""
