-- The slowest machines: each one's median speed beside the median machine's, on the same work, with the 95 % interval that its sessions give. Machines of one place are not distinguishable.
WITH speed AS (
  SELECT r.machine AS machine, r.run_id AS run_id, coalesce(r.session, r.date) AS session,
    s.tokens_per_second AS rate,
    concat(r.engine, ' ', coalesce(r.model, ''), ' ', coalesce(r.quant, ''), ' ',
      coalesce(r.backend, ''), ' ', coalesce(r.device, ''), ' ', cast(coalesce(r.threads, 0) AS VARCHAR(20)), ' ',
      CASE WHEN r.is_profiled = false THEN 'without profiler ' ELSE '' END, s.test, ' ', s.work) AS work
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
  SELECT machine, work, avg(rate) AS rate
  FROM placed
  WHERE 2 * place >= n AND 2 * place <= n + 2
  GROUP BY machine, work
),
among AS (
  SELECT machine, work, rate,
    row_number() OVER (PARTITION BY work ORDER BY rate, machine) AS place,
    count(*) OVER (PARTITION BY work) AS machines
  FROM of_machine
),
middle AS (
  SELECT work, avg(rate) AS rate
  FROM among
  WHERE 2 * place >= machines AND 2 * place <= machines + 2 AND machines > 1
  GROUP BY work
),
-- Sessions are what varies: runs of one resemble each other.
of_session AS (
  SELECT machine, work, session, avg(ln(rate)) AS log_rate
  FROM speed
  GROUP BY machine, work, session
),
of_sessions AS (
  SELECT machine, work, count(*) AS sessions,
    sum(log_rate * log_rate) - sum(log_rate) * sum(log_rate) / count(*) AS squares
  FROM of_session
  GROUP BY machine, work
),
varied AS (
  SELECT v.machine AS machine, sum(v.sessions) AS sessions, sum(v.sessions) - count(*) AS degrees,
    sum(v.squares) AS squares
  FROM of_sessions v
  JOIN middle m ON m.work = v.work
  GROUP BY v.machine
),
-- Student's t for 95 %, for so many degrees of freedom or more.
half AS (
  SELECT machine, sessions,
    CASE WHEN degrees < 1 THEN NULL ELSE
      sqrt(CASE WHEN squares > 0 THEN squares ELSE 0 END / (degrees * sessions))
      * CASE WHEN degrees = 1 THEN 12.71 WHEN degrees = 2 THEN 4.31 WHEN degrees = 3 THEN 3.19
        WHEN degrees = 4 THEN 2.78 WHEN degrees < 7 THEN 2.58 WHEN degrees < 10 THEN 2.37
        WHEN degrees < 20 THEN 2.23 ELSE 2.1 END
    END AS half
  FROM varied
),
beside AS (
  SELECT o.machine AS machine, count(*) AS tests,
    exp(avg(ln(o.rate / m.rate))) AS speed
  FROM of_machine o
  JOIN middle m ON m.work = o.work
  GROUP BY o.machine
),
between_ AS (
  SELECT b.machine AS machine, b.tests AS tests, b.speed AS speed,
    h.sessions AS sessions, b.speed * exp(-h.half) AS low, b.speed * exp(h.half) AS high
  FROM beside b
  JOIN half h ON h.machine = b.machine
)
SELECT
  b.machine AS machine,
  max(b.tests) AS tests,
  max(b.sessions) AS sessions,
  max(b.speed) AS speed_beside_median_machine,
  max(b.low) AS low,
  max(b.high) AS high,
  CASE WHEN max(b.low) IS NULL THEN NULL ELSE 1 + sum(CASE WHEN other.high < b.low THEN 1 ELSE 0 END) END AS place,
  CASE
    WHEN max(b.low) IS NULL THEN 'not known: too few sessions'
    WHEN max(b.high) < 1 THEN 'slower'
    WHEN max(b.low) > 1 THEN 'faster'
    ELSE 'not distinguishable'
  END AS than_the_median_machine
FROM between_ b
CROSS JOIN between_ other
GROUP BY b.machine
ORDER BY 5, 1
