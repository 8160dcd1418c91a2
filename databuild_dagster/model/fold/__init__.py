"""An event makes new state: `evolve` applies it, `react` adds what follows, `standing` what calls for new facts (rule 3.2)."""
