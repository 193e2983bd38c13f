-- The slowest machines: each one's median speed beside the median machine's, on the same work.
WITH speed AS (
  SELECT r.machine AS machine, r.run_id AS run_id, s.tokens_per_second AS rate,
    concat(r.engine, ' ', coalesce(r.model, ''), ' ', coalesce(r.quant, ''), ' ',
      coalesce(r.backend, ''), ' ', coalesce(r.device, ''), ' ', cast(coalesce(r.threads, 0) AS VARCHAR(20)), ' ',
      CASE WHEN r.is_profiled = false THEN 'without profiler ' ELSE '' END, s.test) AS work
  FROM speeds s
  JOIN runs r ON r.run_id = s.run_id
  CROSS JOIN params p
  WHERE s.tokens_per_second > 0 AND r.date >= p.since AND r.date <= p.until
    AND (p.model = '' OR r.model = p.model) AND (p.test = '' OR s.test = p.test)
),
-- A median is the mean of the one or two in the middle: not all engines have the same function for it.
placed AS (
  SELECT machine, work, rate,
    row_number() OVER (PARTITION BY machine, work ORDER BY rate, run_id) AS place,
    count(*) OVER (PARTITION BY machine, work) AS n
  FROM speed
),
of_machine AS (
  SELECT machine, work, avg(rate) AS rate, max(n) AS n
  FROM placed
  WHERE 2 * place >= n AND 2 * place <= n + 2
  GROUP BY machine, work
),
among AS (
  SELECT machine, work, rate, n,
    row_number() OVER (PARTITION BY work ORDER BY rate, machine) AS place,
    count(*) OVER (PARTITION BY work) AS machines
  FROM of_machine
),
middle AS (
  SELECT work, avg(rate) AS rate
  FROM among
  WHERE 2 * place >= machines AND 2 * place <= machines + 2 AND machines > 1
  GROUP BY work
)
SELECT
  o.machine AS machine,
  count(*) AS tests,
  sum(o.n) AS measurements,
  exp(avg(ln(o.rate / m.rate))) AS speed_beside_median_machine
FROM of_machine o
JOIN middle m ON m.work = o.work
GROUP BY o.machine
ORDER BY 4, 1
