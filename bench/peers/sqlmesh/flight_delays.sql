MODEL (
  name nyc.flight_delays,
  kind INCREMENTAL_BY_TIME_RANGE (time_column date),
  cron '@daily',
  start '2013-01-01'
);

SELECT
  f.date, f.month, f.carrier, a.name, f.origin, f.dest, f.time_hour, f.dep_time, f.dep_delay, f.arr_delay,
  w.temp, w.wind_speed, w.precip, w.visib
FROM nyc.flights AS f
LEFT JOIN nyc.weather AS w ON f.date = w.date AND f.origin = w.origin AND f.time_hour = w.time_hour
LEFT JOIN nyc.airlines AS a ON f.carrier = a.carrier
WHERE f.date BETWEEN @start_date AND @end_date
