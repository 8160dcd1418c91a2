MODEL (
  name nyc.flights,
  kind INCREMENTAL_BY_TIME_RANGE (time_column date),
  cron '@daily',
  start '2013-01-01'
);

SELECT make_date(year::INT, month::INT, day::INT) AS date, month, carrier, origin, dest, time_hour, dep_time, dep_delay, arr_delay
FROM RAW(flights)
WHERE make_date(year::INT, month::INT, day::INT) BETWEEN @start_date AND @end_date
