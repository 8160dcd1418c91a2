MODEL (
  name nyc.weather,
  kind INCREMENTAL_BY_TIME_RANGE (time_column date),
  cron '@daily',
  start '2013-01-01'
);

SELECT make_date(year::INT, month::INT, day::INT) AS date, origin, time_hour, temp, wind_speed, precip, visib
FROM RAW(weather)
WHERE make_date(year::INT, month::INT, day::INT) BETWEEN @start_date AND @end_date
