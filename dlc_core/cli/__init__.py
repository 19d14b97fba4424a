"""The command line: one file per command, listed in `dlc_core.plugin.builtin.COMMANDS`."""
