"""The farm: candidates measured on other machines, by Ray or by SSH."""
