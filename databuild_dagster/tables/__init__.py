"""Datasets as Iceberg and Delta tables that other engines read: one snapshot per move of the canonical pointer (rule 10.10).

A table lists the files of the live instances where they are, and nothing is copied. Only this floor imports pyiceberg and
deltalake, each in its own adapter, when a table of that format is opened."""
