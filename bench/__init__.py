"""What the claims about speed rest on. Each module runs alone: `python -m bench.plain_spark`."""
