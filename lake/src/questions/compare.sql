-- Speeds side by side: the median speed of each model by one property of runs (--by quant, engine, backend, model, machine, commit, threads, cpu or device).
WITH speed AS (
  SELECT s.test AS test, r.run_id AS run_id, s.tokens_per_second AS rate,
    CASE p.by_column WHEN 'model' THEN NULL ELSE r.model END AS model,
    CASE p.by_column
      WHEN 'quant' THEN r.quant
      WHEN 'engine' THEN r.engine
      WHEN 'backend' THEN r.backend
      WHEN 'model' THEN r.model
      WHEN 'machine' THEN r.machine
      WHEN 'commit' THEN r.commit
      WHEN 'cpu' THEN r.cpu
      WHEN 'device' THEN r.device
      WHEN 'threads' THEN cast(r.threads AS VARCHAR(20))
    END AS value
  FROM speeds s
  JOIN runs r ON r.run_id = s.run_id
  CROSS JOIN params p
  WHERE s.tokens_per_second > 0 AND r.date >= p.since AND r.date <= p.until
    AND (p.model = '' OR r.model = p.model) AND (p.test = '' OR s.test = p.test)
),
placed AS (
  SELECT test, model, value, rate,
    row_number() OVER (PARTITION BY test, model, value ORDER BY rate, run_id) AS place,
    count(*) OVER (PARTITION BY test, model, value) AS n
  FROM speed
)
SELECT test, model, value, max(n) AS runs, avg(rate) AS tokens_per_second
FROM placed
WHERE 2 * place >= n AND 2 * place <= n + 2
GROUP BY test, model, value
ORDER BY 1, 2, 5 DESC, 3
