"""The exercises that ask for a function, one file per room of the objective."""
