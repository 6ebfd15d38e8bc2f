"""What the command line shows: tables, progress, paired measurements."""
