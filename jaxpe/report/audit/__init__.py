"""The page of an audit: statements in sentences, figures, a table for the console."""
