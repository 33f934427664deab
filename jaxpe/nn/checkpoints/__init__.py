"""Released models: a table of their architectures, and how their files are read and written."""
