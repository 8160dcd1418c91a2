"""The partitions that both teams share."""

import dagster as dg

SPECIES = ["Adelie", "Chinstrap", "Gentoo"]
ISLANDS = ["Biscoe", "Dream", "Torgersen"]

#: A season is an austral summer. It begins in July, and has the name of the year in which it begins.
#: The last one is 2009: it ends in 2010.
by_season = dg.TimeWindowPartitionsDefinition(start="2007", end="2011", fmt="%Y", cron_schedule="0 0 1 7 *")

by_species = dg.StaticPartitionsDefinition(SPECIES)

#: A colony is an island in a season: `Biscoe|2007`.
by_colony = dg.MultiPartitionsDefinition({"island": dg.StaticPartitionsDefinition(ISLANDS), "season": by_season})
