"""Two examples of projects: `flights`, which `definitions.py` at the top deploys, and `penguins`, a project with its own folder."""
