"""Tables, pages and headers for people and programs."""
