"""The ways of a call to a device: checks of the arrays, plans by shapes, donated inputs, guard mode."""
