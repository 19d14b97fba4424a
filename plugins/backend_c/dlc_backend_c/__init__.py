"""Models as C that runs anywhere: the target kind `c` of dlc."""
