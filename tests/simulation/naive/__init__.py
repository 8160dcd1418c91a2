"""The rules as plain functions on Python objects, for some of the commands.

`state` holds the refs, instances and wants; the other modules change them, one subject each. A command returns its refusal,
or None; a refused command changes nothing. Nothing is kept that can be computed, and `consequences` looks at everything
until nothing changes. The rules' text is the only source: of the package, these modules import only the errors and the names
of states, so no mistake of the package is also theirs. `tests/test_layout.py` checks this.
"""
