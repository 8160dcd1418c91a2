"""A unit of work by subject: the rows that one transaction has read, and those that it will write."""
