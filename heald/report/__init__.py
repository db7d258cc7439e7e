"""Tables and pages for users, and headers for programs."""
