-- What is in the lake: runs, machines and days by engine, model and quantisation.
SELECT
  r.engine AS engine,
  coalesce(r.model, '') AS model,
  coalesce(r.quant, '') AS quant,
  count(*) AS runs,
  count(DISTINCT r.machine) AS machines,
  count(DISTINCT r.commit) AS commits,
  min(r.date) AS first_day,
  max(r.date) AS last_day
FROM runs r
CROSS JOIN params p
WHERE r.date >= p.since AND r.date <= p.until
  AND (p.model = '' OR r.model = p.model)
GROUP BY r.engine, coalesce(r.model, ''), coalesce(r.quant, '')
ORDER BY 4 DESC, 1, 2, 3
