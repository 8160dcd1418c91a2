"""Inputs that people and other programs could give, by the thousand: only typed errors and documented exit codes come out."""
