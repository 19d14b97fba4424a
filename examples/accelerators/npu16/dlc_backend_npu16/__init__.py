"""A backend for a simulated accelerator with a matrix array, a scratchpad and DMA."""
