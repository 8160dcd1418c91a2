"""Hosts of a deployment, made of namespaces of one machine, and the faults of their network."""
