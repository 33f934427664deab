"""Programs that read a configuration: one module each, and a table of all."""
