"""What the site makes from the library itself: a page for every public name, and the catalogue."""
