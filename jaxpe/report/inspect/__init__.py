"""The view of the inspect job."""
