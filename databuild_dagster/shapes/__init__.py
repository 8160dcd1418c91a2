"""Answers to questions as JSON has them (rules 15): the command line prints these shapes, and the API of the pages sends them."""
