"""The call paths to a device: checks of arrays, plans by shapes, donated inputs, guard mode."""
