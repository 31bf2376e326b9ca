"""Frameworks: what TRL, verl, OpenRLHF and others really compute, in tables; read a config, export a recipe, identify a loss."""
