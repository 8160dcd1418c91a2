MODEL (
  name nyc.carrier_monthly,
  kind INCREMENTAL_BY_TIME_RANGE (time_column month_start),
  cron '@monthly',
  start '2013-01-01'
);

SELECT
  CAST(date_trunc('month', date) AS DATE) AS month_start,
  carrier,
  COUNT(*) AS flights,
  SUM(CASE WHEN dep_time IS NULL THEN 1 ELSE 0 END) AS canceled,
  SUM(CASE WHEN arr_delay < 15 THEN 1 ELSE 0 END) AS on_time,
  AVG(arr_delay) AS mean_arr_delay
FROM nyc.flight_delays
WHERE date BETWEEN @start_date AND @end_date
GROUP BY 1, 2
