"""Projects to read: `flights` is deployed by `definitions.py` at the top, and `penguins` is a project in a folder of its own.

`adopt` and `migrate` are projects of the pages that take over an asset and migrate a project.
"""
