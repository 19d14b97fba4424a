"""From graphs to tensor programs: groups to PrimFuncs, calls to `main`, values to arena offsets."""
