"""The C backend of dlc: the target kind `c`, for any machine with a C compiler."""
