-- Speed by day: the median of all runs of each day, by engine, model, quantisation and test.
WITH placed AS (
  SELECT r.date AS date, r.engine AS engine, coalesce(r.model, '') AS model, coalesce(r.quant,
    '') AS quant, s.test AS test,
    s.tokens_per_second AS rate,
    row_number() OVER (
      PARTITION BY r.date, r.engine, coalesce(r.model, ''), coalesce(r.quant, ''), s.test
      ORDER BY s.tokens_per_second, r.run_id) AS place,
    count(*) OVER (
      PARTITION BY r.date, r.engine, coalesce(r.model, ''), coalesce(r.quant, ''), s.test) AS n
  FROM speeds s
  JOIN runs r ON r.run_id = s.run_id
  CROSS JOIN params p
  WHERE s.tokens_per_second > 0 AND r.date >= p.since AND r.date <= p.until
    AND (p.model = '' OR r.model = p.model) AND (p.test = '' OR s.test = p.test)
)
SELECT date, engine, model, quant, test, max(n) AS runs, avg(rate) AS tokens_per_second
FROM placed
WHERE 2 * place >= n AND 2 * place <= n + 2
GROUP BY date, engine, model, quant, test
ORDER BY engine, model, quant, test, date
