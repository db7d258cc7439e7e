"""Functions of single elements: of real numbers, of whole numbers, and their tiles."""
