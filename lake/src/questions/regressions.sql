-- Commits, the slowest first: the median speed of each commit beside that of the one before it on the same machine, by the time at which it was first seen there.
WITH speed AS (
  SELECT r.machine AS machine, r.commit AS commit, r.run_id AS run_id,
    s.tokens_per_second AS rate,
    concat(r.engine, ' ', coalesce(r.model, ''), ' ', coalesce(r.quant, ''), ' ',
      coalesce(r.backend, ''), ' ', coalesce(r.device, ''), ' ', cast(coalesce(r.threads, 0) AS VARCHAR(20)), ' ',
      CASE WHEN r.is_profiled = false THEN 'without profiler ' ELSE '' END, s.test, ' ', s.work) AS work
  FROM speeds s
  JOIN runs r ON r.run_id = s.run_id
  CROSS JOIN params p
  WHERE s.tokens_per_second > 0 AND r.commit IS NOT NULL
    AND r.date >= p.since AND r.date <= p.until
    AND (p.model = '' OR r.model = p.model) AND (p.test = '' OR s.test = p.test)
),
placed AS (
  SELECT machine, work, commit, rate,
    row_number() OVER (PARTITION BY machine, work, commit ORDER BY rate, run_id) AS place,
    count(*) OVER (PARTITION BY machine, work, commit) AS n
  FROM speed
),
-- Of all runs, whatever the work: an old commit that is measured again in another test stays old.
first_seen AS (
  SELECT machine, commit, min(created_s) AS since_s
  FROM runs
  WHERE commit IS NOT NULL
  GROUP BY machine, commit
),
of_commit AS (
  SELECT machine, work, commit, avg(rate) AS rate, max(n) AS n
  FROM placed
  WHERE 2 * place >= n AND 2 * place <= n + 2
  GROUP BY machine, work, commit
),
steps AS (
  SELECT o.machine AS machine, o.work AS work, o.commit AS commit, o.rate AS rate, o.n AS n,
    lag(o.commit) OVER (PARTITION BY o.machine, o.work ORDER BY f.since_s, o.commit) AS commit_before,
    lag(o.rate) OVER (PARTITION BY o.machine, o.work ORDER BY f.since_s, o.commit) AS rate_before
  FROM of_commit o
  JOIN first_seen f ON f.machine = o.machine AND f.commit = o.commit
)
SELECT
  commit,
  commit_before,
  count(*) AS machines_and_tests,
  sum(n) AS measurements,
  exp(avg(ln(rate / rate_before))) AS speed_beside_before,
  min(rate / rate_before) AS worst,
  max(rate / rate_before) AS best
FROM steps
WHERE rate_before > 0
GROUP BY commit, commit_before
ORDER BY 5, 1
