"""Facts about this machine: usable cores, free memory, caches and processor."""
