"""A report of a table as one HTML page: facts, their pictures, and the page."""
