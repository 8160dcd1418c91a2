"""Commands about operations."""
