"""The rules, pure: refs, events, state machines, decide, evolve, react. No clock, no ids made, no I/O."""
