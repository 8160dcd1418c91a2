"""Decorators, `build_definitions` and the component, which an author calls to deploy assets."""
