"""One file a family of encodings; each registers its rows of the catalogue."""
