"""The strategies of processors, a file for each family."""
