"""The view of an audit: a page, figures, and a table for the console."""
