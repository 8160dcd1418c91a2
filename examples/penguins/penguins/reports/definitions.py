"""The code location of the reporting team: its modules, joined."""

import dagster as dg

from penguins.reports import seasons, species

defs = dg.Definitions.merge(seasons.defs, species.defs)
