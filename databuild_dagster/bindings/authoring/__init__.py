"""Decorators, `build_definitions` and the component: what an author calls to deploy assets."""
