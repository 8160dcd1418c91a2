MODEL (
  name nyc.airlines,
  kind FULL,
  start '2013-01-01'
);

SELECT carrier, name FROM RAW(airlines)
