"""A unit of work by subject: what one transaction has read, and what it will write."""
