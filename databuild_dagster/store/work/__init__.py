"""A unit of work by subject: the rows that a transaction has read, and the rows that it will write."""
